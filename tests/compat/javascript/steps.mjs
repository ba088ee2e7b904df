// SPDX-License-Identifier: Apache-2.0
// Runs steps one after the other and answers in JSON: each step's name with its error, or null.
export const settings = JSON.parse(process.argv[2])

export async function run(steps) {
  const outcomes = {}
  for (const [name, step] of Object.entries(steps)) {
    try {
      await step()
      outcomes[name] = null
    } catch (error) {
      outcomes[name] = [error, error.cause, ...(error.errors ?? [])].filter(Boolean).map(each => each.stack ?? String(each)).join('\n')
    }
  }
  console.log(JSON.stringify(outcomes))
}

export async function until(condition, what, seconds = 30) {
  const end = Date.now() + seconds * 1000
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

// Who kills nodes meanwhile reads these lines.
export function tell(progress) {
  process.stderr.write(`progress ${progress}\n`)
}
