/** It has its handlers and is started: nothing else to do. */
export async function work() {}
