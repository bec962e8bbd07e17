// `agent demo` on each engine: it prints its figures, and leaves nothing behind after any kind of end.

import { afterAll, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import * as v from "valibot";
import { agent, agentJson, buildAgent, cleanEnvironment } from "../support/agent.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const ms = v.pipe(v.number(), v.minValue(0));
const Result = v.object({
  register_ms: ms,
  first_handshake_ms: ms,
  first_ping_ms: ms,
  revocation_to_last_ping_ms: ms,
  engine_version: v.string(),
});

/** The directory for demos: another test file may run a demo at the same time. */
const place = temporaryDirectory();
const env = { TMPDIR: place.path };
afterAll(() => place[Symbol.dispose]());

/** What a demo could leave: its temporary directory, a namespace, a process with the directory in its arguments. */
function traces(): string[] {
  const directories = readdirSync(place.path);
  const namespaces = Bun.spawnSync(["ip", "netns", "list"]).stdout.toString();
  const processes = Bun.spawnSync(["ps", "-eo", "pid,args"])
    .stdout.toString()
    .split("\n")
    .filter((line) => line.includes(place.path) || line.includes(`${agent} demo`));
  return [
    ...directories,
    ...namespaces.split("\n").filter((line) => /^(hub|lighthouse|alpha|beta)\b/.test(line)),
    ...processes,
  ];
}

/** Ignores what an earlier, killed test run left. */
const before = new Set(traces());
const leftovers = () => traces().filter((each) => !before.has(each));

asRoot("agent demo", () => {
  describeEngines("runs", ({ nebula, version }) => {
    test("within its bars", async () => {
      const result = v.parse(Result, await agentJson(["demo", "--overlay-binary", nebula], { env }));
      expect(result.engine_version).toBe(version);
      // Beside other tests it may be slower; the README has the figures of an idle machine.
      const [firstMs, lastMs] = inFull ? [5000, 6000] : [20_000, 20_000];
      expect(result.first_ping_ms).toBeLessThan(firstMs);
      expect(result.revocation_to_last_ping_ms).toBeLessThan(lastMs);
      expect(leftovers()).toEqual([]);
    }, 60_000);
  });

  describeEngines("is stopped", ({ nebula }) => {
    // Ctrl-C goes to the process group, SIGTERM to the demo only; SIGKILL allows no cleanup.
    const ends = [
      { signal: "SIGINT", group: true, status: 130 },
      { signal: "SIGTERM", group: false, status: 143 },
      { signal: "SIGKILL", group: false, status: 137 },
    ] as const;
    for (const { signal, group, status } of ends) {
      test(`by ${signal}, has its exit status, and leaves nothing`, async () => {
        const child = Bun.spawn([agent, "demo", "--overlay-binary", nebula], {
          env: cleanEnvironment(env),
          stdin: "ignore",
          stdout: "ignore",
          stderr: "pipe",
          detached: true,
        });
        // Now the engines run and ping each other.
        let said = "";
        for await (const chunk of child.stderr) {
          said += new TextDecoder().decode(chunk);
          if (said.includes("ping ")) break;
        }
        expect(said).toContain("ping ");
        process.kill(group ? -child.pid : child.pid, signal);
        expect(await child.exited).toBe(status);
        for (let waited = 0; leftovers().length > 0 && waited < 5000; waited += 50) await Bun.sleep(50);
        expect(leftovers()).toEqual([]);
      }, 60_000);
    }
  });
});
