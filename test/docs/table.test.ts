import { expect, it } from 'vitest'
import { migratedDatabase, poolOn } from '../support/trap-kit.js'
import { differing, findIn, read, tableOf } from './pages.js'

const PAGE = 'docs/table-contract.md'

interface Column {
  readonly column_name: string
  readonly data_type: string
  readonly is_nullable: 'YES' | 'NO'
  readonly column_default: string | null
}

/** A pool on a database with the tables of the newest schema, and the columns of the events table. */
async function migrated() {
  const pool = poolOn(await migratedDatabase())
  const { rows: columns } = await pool.query<Column>(
    `select column_name, data_type, is_nullable, column_default
     from information_schema.columns where table_name = 'outbox_event' order by ordinal_position`,
  )
  return { pool, columns }
}

/** Columns that a writer may set, each with its line. */
const writable = tableOf(PAGE, '| Column |').flatMap(({ place, cells }) =>
  (cells.Column ?? '').split(', ').map((name) => ({
    place,
    name,
    type: cells['Type on PostgreSQL'] ?? '',
    given: cells['Must be given'] ?? '',
  })),
)

/** Columns that the page tells a writer to leave alone, and the second column for a payload. */
function namedInText(): string[] {
  const text = read(PAGE)
  const alone = text.slice(text.indexOf('Leave `seq`'), text.indexOf('a row that\nis written with a lease'))
  const names = [...alone.matchAll(/`(\w+)`/g)].map((match) => String(match[1]))
  return [...names, ...(text.includes('or `payload_bytes` (bytea)') ? ['payload_bytes'] : [])]
}

it('docs/table-contract.md names every column of the migrated table, and no other', async () => {
  const { columns } = await migrated()
  const named = [...writable.map(({ name }) => name), ...namedInText(), 'created_at']
  expect([...new Set(named)].sort()).toEqual(columns.map(({ column_name }) => column_name).sort())
})

it('docs/table-contract.md gives the types of the columns', async () => {
  const { columns } = await migrated()
  const SHORT: Readonly<Record<string, string>> = {
    integer: 'int',
    'timestamp with time zone': 'timestamptz',
  }
  const pairs = writable.map(({ place, name, type }) => {
    const actual = columns.find(({ column_name }) => column_name === name)?.data_type ?? 'no column'
    return { place, says: type, code: SHORT[actual] ?? actual, what: `the type of ${name}` }
  })
  expect(differing(pairs)).toEqual([])
})

it('docs/table-contract.md says which columns must be given', async () => {
  const { columns } = await migrated()
  const pairs = writable.map(({ place, name, given }) => {
    const column = columns.find(({ column_name }) => column_name === name)
    const isNeeded = column?.is_nullable === 'NO' && column.column_default === null
    // A constraint asks for one of two columns.
    const code = name === 'payload' ? 'yes' : isNeeded ? 'yes' : 'no'
    return { place, says: /^\w+/.exec(given)?.[0], code, what: `whether ${name} must be given` }
  })
  expect(differing(pairs)).toEqual([])
})

it('docs/table-contract.md lists the parameters of outbox_publish in their order', async () => {
  const { pool } = await migrated()
  const { rows } = await pool.query<{ names: string[]; inputs: number; optional: number }>(
    `select proargnames as names, pronargs as inputs, pronargdefaults as optional from pg_proc where proname = 'outbox_publish'`,
  )
  const [{ names, inputs, optional } = { names: [], inputs: 0, optional: 0 }] = rows
  const documented = tableOf(PAGE, '| Parameter |')
  expect(documented.map(({ cells }) => cells.Parameter)).toEqual(names.slice(0, inputs))
  expect(documented.filter(({ cells }) => cells.Default !== 'required')).toHaveLength(optional)
})

it('docs/table-contract.md calls the procedure of MySQL with as many arguments as it has parameters', () => {
  const count = tableOf(PAGE, '| Parameter |').length
  const calls = [
    ...findIn(PAGE, /^call outbox_publish\((.*)\);$/gm),
    ...findIn('docs/mysql.md', /^call outbox_publish\((.*)\);$/gm),
  ]
  expect(calls.length).toBeGreaterThan(1)
  const pairs = calls.map(({ place, groups }) => ({
    place,
    says: (groups[1] as string).replaceAll(/'[^']*'/g, '').split(',').length,
    code: count,
    what: 'the number of parameters',
  }))
  expect(differing(pairs)).toEqual([])
})

it('docs/table-contract.md gives the defaults of the parameters', async () => {
  const { pool } = await migrated()
  const id = 'a'
  await pool.query(`select outbox_publish('table.documented', event_id => $1)`, [id])
  const { rows } = await pool.query(`select * from outbox_event where event_id = $1`, [id])
  const pairs = tableOf(PAGE, '| Parameter |').flatMap(
    ({ place, cells: { Parameter: name = '', Default: says = '' } }) =>
      name in rows[0] && !['event_type', 'event_id'].includes(name)
        ? [
            {
              place,
              says: says.replaceAll("'", ''),
              code: shown(rows[0][name], says),
              what: `the default of ${name}`,
            },
          ]
        : [],
  )
  expect(pairs.length).toBeGreaterThan(5)
  expect(differing(pairs)).toEqual([])
})

function shown(value: unknown, says: string): string {
  return value === null ? (says === 'null' ? 'null' : 'none') : String(value)
}
