// `bun test/support/write-groups.ts URL TOKEN CA_FILE`: creates one group after another until it is ended, and prints the name
// of each that was acknowledged. Run inside a namespace, where the test itself is not.

import { readFileSync } from "node:fs";

const [url = "", token = "", ca = ""] = process.argv.slice(2);
for (let at = 0; ; at++) {
  const name = `g${at}`;
  for (;;) {
    const answer = await fetch(url, {
      method: "POST",
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      body: JSON.stringify({ name }),
      keepalive: false,
      signal: AbortSignal.timeout(10_000),
      tls: { ca: readFileSync(ca, "utf8"), serverName: "control.example.org" },
    }).catch(() => undefined);
    // 409: an earlier try was carried out although its answer was lost.
    if (answer?.status === 201 || answer?.status === 409) break;
    if (answer !== undefined && answer.status < 500)
      process.stdout.write(`! ${answer.status} ${await answer.text()}\n`);
    await Bun.sleep(100);
  }
  process.stdout.write(`${name}\n`);
}
