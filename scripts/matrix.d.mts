export interface SuiteCount {
  passed: number
  failed: number
  skipped: number
}

export interface TestResult {
  readonly assertionResults: readonly {
    readonly ancestorTitles: readonly string[]
    readonly status: string
  }[]
}

export function countSuites(testResults: readonly TestResult[]): Map<string, SuiteCount>

export function countThemes(testResults: readonly TestResult[]): Map<string, SuiteCount>

export function busesOf(
  runs: readonly ReadonlyMap<string, SuiteCount>[],
  buses?: readonly string[],
  optional?: RegExp,
): { lines: string[]; empty: string[] }

export function matrixOf(
  runs: ReadonlyMap<string, ReadonlyMap<string, SuiteCount>>,
  stores?: readonly string[],
): { lines: string[]; empty: string[] }

export function integrationsOf(
  runs: ReadonlyMap<string, ReadonlyMap<string, SuiteCount>>,
  names: readonly string[],
  absent?: readonly { integration: string; database: string; reason: string }[],
  drivers?: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>>,
): { lines: string[]; empty: string[] }
