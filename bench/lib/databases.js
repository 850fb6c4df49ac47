// A fresh database for every measurement, so that nobody inherits another's dead rows: the state to start from is
// built once, as a template, and copied. The copy is made after a checkpoint and through the WAL, so that its pages
// are warm and need no further full-page image: neither side pays for the copying.
import pg from 'pg'

export class Databases {
  #url
  #admin
  #templates = new Map()
  #count = 0

  constructor(url) {
    this.#url = url
    this.#admin = new pg.Pool({ connectionString: url, max: 1 })
    this.#admin.on('error', () => {})
  }

  /** A copy of the template `key`, which `build(url)` fills when it is asked for the first time. */
  async fresh(key, build) {
    const template = await this.#template(key, build)
    const name = `run_${++this.#count}`
    await this.#admin.query('checkpoint')
    await this.#admin.query(`create database ${name} template ${template} strategy wal_log`)
    return { name, url: this.#urlOf(name), drop: () => this.#drop(name) }
  }

  /** Runs `use(url, database)` on a fresh copy and drops it. */
  async with(key, build, use) {
    const database = await this.fresh(key, build)
    try {
      return await use(database.url, database)
    } finally {
      await database.drop()
    }
  }

  async query(text) {
    return (await this.#admin.query(text)).rows
  }

  /** Frees the room of big templates. */
  async forget(key) {
    const name = await this.#templates.get(key)
    this.#templates.delete(key)
    if (name) await this.#drop(name)
  }

  async close() {
    await this.#admin.end()
  }

  /** Built once, also when two ask at the same time; one that failed is tried again. */
  #template(key, build) {
    if (!this.#templates.has(key)) {
      const built = this.#build(build)
      built.catch(() => this.#templates.delete(key))
      this.#templates.set(key, built)
    }
    return this.#templates.get(key)
  }

  async #build(build) {
    const name = `template_${this.#templates.size + 1}_${++this.#count}`
    await this.#admin.query(`create database ${name}`)
    const url = this.#urlOf(name)
    await build(url)
    await withClient(url, (client) => client.query('vacuum analyze'))
    return name
  }

  async #drop(name) {
    await this.#admin.query(`drop database if exists ${name} with (force)`)
  }

  #urlOf(name) {
    const url = new URL(this.#url)
    url.pathname = `/${name}`
    return url.href
  }
}

export async function withClient(url, use) {
  const client = new pg.Client({ connectionString: url })
  client.on('error', () => {})
  await client.connect()
  try {
    return await use(client)
  } finally {
    await client.end()
  }
}
