import fs from 'node:fs'
import path from 'node:path'
import { findPostgres } from '../../scripts/postgres-server.mjs'

/** Whether the server can load pg_stat_statements; one that is told to load what it does not have does not start. */
export function findExtension() {
  const found = findPostgres('newest')
  if (!found) return false
  const home = path.dirname(found.bin)
  const folders = [path.join(home, 'lib', 'postgresql'), path.join(home, 'lib')]
  return folders.some((folder) =>
    ['so', 'dylib', 'dll'].some((ending) => fs.existsSync(path.join(folder, `pg_stat_statements.${ending}`))),
  )
}
