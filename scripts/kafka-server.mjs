// A private Kafka broker for tests and bench: a temporary folder, free ports, nothing left behind.
// Types and guarantees: kafka-server.d.mts.
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { findProgram, installPackage } from './debian-package.mjs'
import { freePort, PrivateServer } from './private-server.mjs'

export const KAFKA = '4.1.0'
const SLF4J = '1.7.36'
const CACHE = path.resolve(import.meta.dirname, '..', '.tmp')
const CLUSTER_ID = 'YWZ0ZXJjb21taXQta2Fma2'

const TRAITS = {
  title: 'Kafka',
  kind: 'kafka',
  ready: 'Kafka Server started',
  // The port that was free may be one that a door is going to take.
  transient: /Address already in use|BindException|two listeners on the same port/i,
  hides: /^(KAFKA|JAVA_TOOL_OPTIONS)/,
  // An orderly shutdown hands leadership on, which one node alone cannot do; its data is for the bin.
  stopsBy: ['SIGKILL'],
  destroysBy: 'SIGKILL',
}

export async function startKafka({ port, doors = [], settings = {} } = {}) {
  const java = program('java', 'Java', 'openjdk-17-jre-headless')
  const jars = fetchKafka()
  let controllerPort = await freePort()
  while (doors.some((door) => door.port === controllerPort)) controllerPort = await freePort()
  return new Server({ java, jars, port, controllerPort, doors, settings }).create()
}

/** It cannot be had here: nothing is wrong with it. */
export class KafkaMissing extends Error {}

// ── where it comes from ────────────────────────────────────────────────────────────────────────────────────

function program(name, title, debianPackage) {
  if (!findProgram(name)) installPackage(title, debianPackage)
  const found = findProgram(name)
  if (!found)
    throw new KafkaMissing(`${title} is not on this machine; install ${debianPackage}, or set KAFKA_BROKERS`)
  return found
}

/** The folder with the broker and what it depends on, fetched once. Two that fetch at once do not disturb each other. */
function fetchKafka() {
  const jars = path.join(CACHE, `kafka-${KAFKA}`)
  if (fs.existsSync(jars)) return jars
  const mvn = program('mvn', 'Maven', 'maven')
  fs.mkdirSync(CACHE, { recursive: true })
  const folder = fs.mkdtempSync(path.join(CACHE, 'kafka-fetching-'))
  try {
    console.error(`[services] fetching Kafka ${KAFKA} from Maven Central, once (43 MB)`)
    fs.writeFileSync(path.join(folder, 'pom.xml'), pom())
    const args = [
      '-B',
      '-q',
      'dependency:copy-dependencies',
      '-DincludeScope=runtime',
      `-DoutputDirectory=${folder}/jars`,
    ]
    const { status, stdout } = spawnSync(mvn, args, { cwd: folder, encoding: 'utf8', timeout: 300_000 })
    if (status !== 0) throw new KafkaMissing(`Kafka cannot be fetched from Maven Central:\n${lastOf(stdout)}`)
    if (!fs.existsSync(jars)) moveIfFree(path.join(folder, 'jars'), jars)
    return jars
  } finally {
    fs.rmSync(folder, { recursive: true, force: true })
  }
}

function moveIfFree(from, to) {
  try {
    fs.renameSync(from, to)
  } catch (error) {
    if (!fs.existsSync(to)) throw error
  }
}

function lastOf(text) {
  return String(text ?? '')
    .trim()
    .slice(-500)
}

function pom() {
  const needed = [
    ['org.apache.kafka', 'kafka_2.13', KAFKA],
    ['org.slf4j', 'slf4j-simple', SLF4J],
  ]
  const dependencies = needed.map(
    ([group, artifact, version]) =>
      `<dependency><groupId>${group}</groupId><artifactId>${artifact}</artifactId><version>${version}</version></dependency>`,
  )
  return `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>aftercommit</groupId><artifactId>kafka-for-tests</artifactId><version>1</version>
  <dependencies>${dependencies.join('')}</dependencies>
</project>
`
}

// ── the server ─────────────────────────────────────────────────────────────────────────────────────────────

class Server extends PrivateServer {
  #java
  #jars
  #controllerPort
  #doors
  #settings

  constructor({ java, jars, port, controllerPort, doors, settings }) {
    super(TRAITS, { port })
    this.#java = java
    this.#jars = jars
    this.#controllerPort = controllerPort
    this.#doors = doors
    this.#settings = settings
  }

  get brokers() {
    return [`127.0.0.1:${this.port}`]
  }

  async initialise() {
    const config = this.#writeConfig()
    const format = ['kafka.tools.StorageTool', 'format', '-t', CLUSTER_ID, '-c', config]
    await this.complete(this.#java, [...this.#options('error'), ...format])
  }

  command() {
    return [this.#java, [...this.#options('info'), 'kafka.Kafka', this.#writeConfig()]]
  }

  #options(level) {
    return [
      '-Xms128m',
      '-Xmx384m',
      '-XX:+UseSerialGC',
      '-XX:TieredStopAtLevel=1',
      '-Dorg.slf4j.simpleLogger.defaultLogLevel=error',
      `-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=${level}`,
      '-cp',
      path.join(this.#jars, '*'),
    ]
  }

  #writeConfig() {
    const file = path.join(this.home, 'server.properties')
    const lines = Object.entries({ ...this.#properties(), ...this.#settings })
    fs.writeFileSync(file, lines.map(([name, value]) => `${name}=${value}\n`).join(''))
    return file
  }

  #properties() {
    const doors = this.#doors.map((door, at) => ({ ...door, name: `DOOR${at}` }))
    const listeners = [
      { name: 'CLIENT', port: this.port, advertisedPort: this.port },
      ...doors,
      { name: 'CONTROLLER', port: this.#controllerPort },
    ]
    const reachable = listeners.filter(({ advertisedPort }) => advertisedPort !== undefined)
    return {
      'process.roles': 'broker,controller',
      'node.id': 1,
      'controller.quorum.voters': `1@127.0.0.1:${this.#controllerPort}`,
      'controller.listener.names': 'CONTROLLER',
      'inter.broker.listener.name': 'CLIENT',
      listeners: listeners.map(({ name, port }) => `${name}://127.0.0.1:${port}`).join(','),
      'advertised.listeners': reachable
        .map(({ name, advertisedPort }) => `${name}://127.0.0.1:${advertisedPort}`)
        .join(','),
      'listener.security.protocol.map': listeners.map(({ name }) => `${name}:PLAINTEXT`).join(','),
      'log.dirs': path.join(this.data, 'log'),
      'num.network.threads': 1,
      'num.io.threads': 4,
      'auto.create.topics.enable': false,
      'offsets.topic.num.partitions': 1,
      'offsets.topic.replication.factor': 1,
      'transaction.state.log.num.partitions': 1,
      'transaction.state.log.replication.factor': 1,
      'transaction.state.log.min.isr': 1,
      'group.initial.rebalance.delay.ms': 0,
      // A broker that was killed is let in again when its former self has been silent for so long.
      'broker.heartbeat.interval.ms': 500,
      'broker.session.timeout.ms': 3_000,
    }
  }
}
