import { expect } from 'vitest'
import type { Finding, OutboxStore } from '../../../src/index.js'

type Diagnosed = Pick<OutboxStore, 'diagnose'>

/** Fails unless there is just one finding of the check. */
export async function findingOf(store: Diagnosed, check: string): Promise<Finding> {
  return one(await store.diagnose(), check)
}

export function one(findings: readonly Finding[], check: string): Finding {
  const found = findings.filter((finding) => finding.check === check)
  expect(
    found.map((finding) => finding.check),
    JSON.stringify(findings, null, 1),
  ).toEqual([check])
  return found[0] as Finding
}

/** `check: level`, in the order of the findings. */
export function levels(findings: readonly Finding[]): string[] {
  return findings.map(({ check, level }) => `${check}: ${level}`)
}

/** The SQL of an advice, statement by statement, as somebody would paste it. */
export function statementsIn(advice: string | undefined): string[] {
  const statement = /\b(?:ALTER|CREATE|REINDEX|ROLLBACK PREPARED|SELECT|GRANT|KILL|VACUUM|SET GLOBAL) [^;]*;/g
  const found = advice?.match(statement) ?? []
  expect(found.length, `no SQL in: ${advice}`).toBeGreaterThan(0)
  return found
}
