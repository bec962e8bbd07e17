// `register --force` and `unregister` are killed at every rename and every removal of a file or directory, with and without a file system that exchanges
// directories. Whatever the kill leaves, the next command works without a network: the organization is the former
// registration or the new one as a whole, or it is gone as a whole.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  agent,
  buildAgent,
  cleanEnvironment,
  runAgent,
  startControlPlane,
  type ControlPlane,
} from "../support/agent.ts";
import { inCi, installMissing } from "../support/debian.ts";
import { makeOrganization, registerArguments, registerNode, type Organization } from "../support/overlay.ts";

const missing = installMissing(["/usr/bin/strace"]);
if (inCi && missing !== undefined) throw new Error(missing);

const directory = mkdtempSync(join(tmpdir(), "agent-test-"));
let plane: ControlPlane;
let acme: Organization;
/** For all registrations. */
let token: string;

beforeAll(async () => {
  buildAgent();
  plane = await startControlPlane(join(directory, "server"));
  acme = await makeOrganization(plane);
  token = await acme.makeToken(["--uses", "1000"]);
}, 240_000);

afterAll(async () => {
  await plane.stop();
  rmSync(directory, { recursive: true, force: true });
});

/** Calls of the kernel, apart: strace counts each kind for itself. `rename` are all that the agent makes. */
const kinds = ["rename", "renameat2", "unlink", "rmdir"];

/** strace kills the process at its N-th call of this kind. Resolves with true if it came so far. */
async function isKilledAt(
  [kind, nth]: readonly [string, number],
  argv: readonly string[],
  input: string,
  noExchange = false,
): Promise<boolean> {
  const inject = [
    ...(noExchange ? ["-e", "inject=renameat2:error=EINVAL"] : []),
    "-e",
    `inject=${kind}:signal=SIGKILL:when=${nth}`,
  ];
  const child = Bun.spawn(["/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", ...inject, agent, ...argv], {
    env: cleanEnvironment(),
    stdin: new Blob([input]),
    stdout: "ignore",
    stderr: "ignore",
  });
  await child.exited;
  if (child.signalCode !== "SIGKILL") expect(child.exitCode).toBe(0);
  return child.signalCode === "SIGKILL";
}

const files = [
  "config.yml",
  "ca.crt",
  "host.crt",
  "node.crt",
  "node-config.json",
  "credentials.json",
  "host.key",
];

const status = (root: string, ...flags: string[]) =>
  runAgent(["status", "--config-root", root, "--socket-path", join(root, "none"), ...flags]);

/** Complete, and nothing of two registrations mixed: the stored token works, and the certificate fits the key. */
async function isWhole(root: string): Promise<void> {
  const status = await runAgent([
    "status",
    "--config-root",
    root,
    "--socket-path",
    join(root, "none"),
    "--json",
  ]);
  expect(JSON.parse(status.stdout)).toMatchObject({ teams: [{ team: "acme", mode: "server" }] });
  expect(readdirSync(root)).toContain("acme");
  for (const name of files) expect(`${name} ${existsSync(join(root, "acme", name))}`).toBe(`${name} true`);
  expect(readFileSync(join(root, "acme/config.yml"), "utf8")).toContain(join(root, "acme/host.crt"));
}

for (const noExchange of [false, true]) {
  const how = noExchange ? "by two renames" : "by an exchange";
  test.skipIf(missing !== undefined)(
    `register --force, which replaces ${how}, killed at each step`,
    async () => {
      let kills = 0;
      for (const kind of kinds) {
        if (noExchange && kind === "renameat2") continue;
        for (let nth = 1; ; nth++, kills++) {
          // A node of its own: the certificates of one node are bounded.
          const name = `${noExchange ? "renames" : "exchange"}-${kills}-${kind}`;
          const root = mkdtempSync(join(directory, `${name}-`));
          await registerNode(acme, root, name, token);
          const args = [...registerArguments(acme, root, name), "--force"];
          const isKilled = await isKilledAt([kind, nth], args, token, noExchange);
          await isWhole(root);
          if (isKilled) continue;
          expect(readdirSync(root)).toEqual(["acme"]);
          expect((await runAgent(["checkin", "--config-root", root])).status).toBe(0);
          break;
        }
      }
      process.stderr.write(`${how}: ${kills} kills\n`);
      expect(kills).toBeGreaterThan(20);
    },
    300_000,
  );
}

test.skipIf(missing !== undefined)(
  "unregister killed at each step: registered as before, or gone, also beside what a killed registration left",
  async () => {
    const root = mkdtempSync(join(directory, "leave-"));
    const words = [
      "unregister",
      "--org-slug",
      "acme",
      "--config-root",
      root,
      "--socket-path",
      join(root, "none"),
    ];
    let kills = 0;
    let names = 0;
    const leave = async (at: readonly [string, number]) => {
      if (!readdirSync(root).includes("acme")) await registerNode(acme, root, `leave-${names++}`, token);
      // A registration that was killed before its exchange, and the former directory of another one.
      for (const left of [".acme.pending", ".acme.replaced"]) {
        rmSync(join(root, left), { recursive: true, force: true });
        Bun.spawnSync(["cp", "-a", join(root, "acme"), join(root, left)]);
      }
      return isKilledAt(at, words, "");
    };
    for (const kind of ["rename", "unlink", "rmdir"]) {
      for (let nth = 1; await leave([kind, nth]); nth++, kills++) {
        if (readdirSync(root).includes("acme")) await isWhole(root);
        else expect((await status(root)).stdout).toBe("No organization is registered on this machine\n");
      }
    }
    process.stderr.write(`unregister: ${kills} kills\n`);
    expect(kills).toBeGreaterThan(20);
    expect(readdirSync(root)).toEqual([]);
  },
  300_000,
);
