export function payloadOfSize(id: number, bytes: number): object
