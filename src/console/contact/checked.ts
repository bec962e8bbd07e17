// Checks an answer against the contract. While it is bundled for browsers, a function
// without the check takes this one's place, because the bundle has no schemas (server/console/bundler.ts). So this one runs in
// tests alone.

import { endpointOf } from "../../api/all-endpoints.ts";

/** Throws if the endpoint declares no such answer. */
export function checkAnswer(data: unknown, asked: { method: string; path: string; status: number }): void {
  const found = endpointOf(asked.method, asked.path);
  const result = found?.answers[asked.status]?.schema?.["~standard"].validate(data);
  if (result !== undefined && "issues" in result && result.issues !== undefined)
    throw new Error(`${found?.name}: ${result.issues.map(({ message }) => message).join(" ")}`);
}
