import { errorFields, type Logger } from '../observe/logger.js'

/** Runs background work. Logs an error and resolves with false, because the work is repeated later. */
export async function attempt(task: string, logger: Logger, work: () => Promise<unknown>): Promise<boolean> {
  try {
    await work()
    return true
  } catch (error) {
    logger.warn({ task, ...errorFields(error) }, 'background work failed; trying again later')
    return false
  }
}
