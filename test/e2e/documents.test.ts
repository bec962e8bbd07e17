// The sh blocks of the documents, typed in the order of test/support/document-blocks.ts on three booted machines: a control
// plane that is the lighthouse, a server, a laptop. Names and addresses are those of the documents.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { appendFileSync, copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { parseJoinKey } from "../../src/protocol/join-key.ts";
import { buildAgent } from "../support/agent.ts";
import { blockRuns, type Machine as Name } from "../support/document-blocks.ts";
import { blocksOf, documents } from "../support/documents.ts";
import { makeLan, type Lan } from "../support/namespaces.ts";
import { describeMachine, makeMachine, type Machine } from "../support/nspawn.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const names = ["control", "web", "laptop"] as const satisfies readonly Name[];
const blocks = documents.flatMap(blocksOf);
const textOf = (key: string) => blocks.find((each) => each.key === key)?.text ?? "";

describeMachine("the documents", () => {
  const directory = temporaryDirectory();
  const machines = new Map<Name, Machine>();
  let lan: Lan;
  /** The join keys that `agent setup` printed. */
  let keys: string[] = [];
  let fingerprint = "";
  const on = (name: Name): Machine => {
    const machine = machines.get(name);
    if (machine === undefined) throw new Error(`There is no machine ${name}`);
    return machine;
  };

  beforeAll(async () => {
    const place = join(directory.path, "usr/local/bin/agent");
    mkdirSync(dirname(place), { recursive: true });
    copyFileSync(buildAgent(), place);
    lan = makeLan(names);
    for (const name of names) {
      const machine = makeMachine(lan.host(name).namespace, directory.path);
      machines.set(name, machine);
      await machine.boot();
      writeFileSync(join(machine.root, "etc/hostname"), `${name}\n`);
      await machine.must(`hostname ${name} || true`);
      appendFileSync(join(machine.root, "etc/hosts"), `${lan.host("control").address} control.example.org\n`);
    }
    writeFileSync(join(on("control").root, "root/password"), "correct horse battery");
  }, 300_000);

  afterAll(async () => {
    for (const machine of machines.values()) await machine[Symbol.asyncDispose]();
    lan[Symbol.dispose]();
    directory[Symbol.dispose]();
  });

  /** As on a terminal: the first line that fails ends it. Each join key is used once. */
  const typed = (script: string) =>
    `cd /root && set -e\n${script}`
      .replaceAll("203.0.113.10", lan.host("control").address)
      .replaceAll("sha256:FINGERPRINT", fingerprint)
      .replaceAll("oaj1KEY", () => keys.shift() ?? "");

  for (const [key, run] of Object.entries(blockRuns)) {
    if ("sameAs" in run) {
      test(`${key}: is also in ${run.sameAs}`, () => {
        const there = textOf(run.sameAs).split("\n");
        expect(
          textOf(key)
            .split("\n")
            .filter((line) => !there.includes(line)),
        ).toEqual([]);
      });
    } else if ("on" in run) {
      test(`${key}: on ${run.on}`, async () => {
        const machine = on(run.on);
        if (run.before !== undefined) await machine.must(typed(run.before));
        let script = textOf(key);
        for (const [from, to] of run.replace ?? []) script = script.replace(from, to);
        const printed = await machine.must(typed(script), 120_000);
        if (script.startsWith("agent setup")) {
          keys = printed.match(/oaj1[\w-]+/g) ?? [];
          fingerprint = keys.map((each) => parseJoinKey(each).caFingerprint)[0] ?? "";
        }
        if (run.after !== undefined) await machine.must(typed(run.after));
        if (script.includes(">token")) await handOut();
      }, 180_000);
    }
  }

  /** "Copy the token to the machine." */
  async function handOut(): Promise<void> {
    for (const name of ["web", "laptop"] as const)
      copyFileSync(join(on("control").root, "root/token"), join(on(name).root, "root/token"));
  }
});
