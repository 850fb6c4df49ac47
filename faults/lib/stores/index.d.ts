export type StoreName = 'postgres' | 'mysql' | 'mariadb' | 'sqlite'

export interface OpenedStore {
  readonly name: StoreName
  /** Leaves nothing behind. */
  stop(): Promise<void>
}

export const STORES: readonly StoreName[]
/** Rejects when the server cannot be had on this machine. */
export function openStore(name: StoreName): Promise<OpenedStore>
