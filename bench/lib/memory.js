import fs from 'node:fs'

/**
 * The most memory this process has held, in MB. On Linux as the kernel counts for this program alone: `maxRSS` begins
 * there with what the parent held when it started us.
 */
export function peakMb() {
  try {
    const [, kilobytes] = /^VmHWM:\s+(\d+) kB$/m.exec(fs.readFileSync('/proc/self/status', 'utf8'))
    return Number(kilobytes) / 1024
  } catch {
    return process.resourceUsage().maxRSS / 1024
  }
}
