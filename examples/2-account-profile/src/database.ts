import Database from 'libsql'

export type { Database }

const TABLES = `
  create table if not exists accounts (id text primary key, email text not null unique);
  create table if not exists profiles (account_id text not null, display_name text not null);`

export function openDatabase(file: string): Database.Database {
  return new Database(file)
}

export function createTables(file: string): void {
  const database = openDatabase(file)
  database.exec(TABLES)
  database.close()
}
