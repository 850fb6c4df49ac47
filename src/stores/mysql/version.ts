import type { Query } from './driver.js'

/** Version of the server as it reports it: `9.7.0`, `10.11.14-MariaDB-0+deb12u2`. */
export async function versionOf(query: Query): Promise<string> {
  return String((await query('select version()')).rows[0]?.[0])
}

export function isMariadb(version: string): boolean {
  return /mariadb/i.test(version)
}
