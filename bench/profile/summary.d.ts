export interface Frame {
  readonly functionName: string
  readonly url: string
  readonly lineNumber: number
}

export interface Cost {
  readonly frame: Frame
  readonly cost: number
}

export interface CpuProfile {
  readonly nodes: readonly { readonly id: number; readonly callFrame: Frame }[]
  readonly samples: readonly number[]
  readonly timeDeltas: readonly number[]
}

export interface HeapNode {
  readonly callFrame: Frame
  readonly selfSize: number
  readonly children: readonly HeapNode[]
}

export interface Part {
  readonly name: string
  readonly share: number
  readonly perEvent: number
}

export function cpuCosts(profile: CpuProfile): Cost[]
export function heapCosts(profile: { readonly head: HeapNode }): Cost[]
export function summarise(
  costs: readonly Cost[],
  events: number,
): { readonly perEvent: number; readonly areas: Part[]; readonly functions: Part[] }
