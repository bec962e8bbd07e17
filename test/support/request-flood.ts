// Requests without a pause, each on a new connection, from a network namespace of a test: which of them fail?

import * as v from "valibot";
import type { Host } from "./namespaces.ts";

/** Eight at a time, until standard input ends. Prints how many, and the failures. */
const program = `
let [sent, over] = [0, false];
const failures = [];
process.stdin.on("data", () => (over = true));
await Promise.all(Array.from({ length: 8 }, async () => {
  while (!over) {
    sent++;
    try {
      const answer = await fetch(process.argv[1], { keepalive: false, tls: { rejectUnauthorized: false } });
      if (answer.status !== 200) failures.push(answer.status);
      await answer.text();
    } catch (error) {
      failures.push(String(error));
    }
  }
}));
console.log(JSON.stringify({ sent, failures }));
process.exit(0);
`;

const Flood = v.pipe(
  v.string(),
  v.parseJson(),
  v.object({ sent: v.number(), failures: v.array(v.unknown()) }),
);

export type RequestFlood = { stop(): Promise<v.InferOutput<typeof Flood>> };

export function startFlood(host: Host, url: string): RequestFlood {
  const child = Bun.spawn(host.inside([process.execPath, "-e", program, url]), {
    stdin: "pipe",
    stdout: "pipe",
    stderr: "inherit",
  });
  return {
    async stop() {
      void child.stdin.write("over");
      await child.stdin.end();
      return v.parse(Flood, await new Response(child.stdout).text());
    },
  };
}
