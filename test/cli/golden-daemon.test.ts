// Golden files of the JSON documents of the commands that talk to the daemon, and of self-update.
// To accept a change: GOLDEN=write bun test test/cli/golden-daemon.test.ts

import { expect, test } from "bun:test";
import { copyFileSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { hostTarget } from "../../build.ts";
import { connectDaemon } from "../../src/daemon/ipc/client.ts";
import { realSystem } from "../../src/base/system.ts";
import { documentOf, expectGolden } from "../support/golden.ts";
import { makeNodeWorld, type NodeWorld, type Ran } from "../support/node.ts";
import { makeRelease, makeReleaseKey, standIn } from "../support/releases.ts";
import { temporaryDirectory } from "../support/temporary.ts";

/** Prints its version, accepts every configuration, and runs until SIGTERM. */
const engine = `#!/bin/bash
case $1 in -version) echo "Version: 1.10.3"; exit;; -test) exit;; esac
trap 'exit 0' TERM
trap : HUP
echo '{"level":"info","msg":"Nebula interface is active"}'
while :; do sleep 0.01; done
`;

const Status = v.object({
  daemon: v.object({ running: v.boolean() }),
  teams: v.array(
    v.object({
      state: v.string(),
      last_checkin_at: v.nullish(v.string()),
      health: v.optional(v.object({ verdict: v.string() })),
    }),
  ),
});
type Status = v.InferOutput<typeof Status>;

/** A second organization for `switch` to choose from. */
async function registerBeta({ server, api, register }: NodeWorld): Promise<void> {
  const beta = await server.organization("beta", "10.78.0.0/16");
  await server.join(beta, "owner@company.example", "owner");
  const made = await api("POST", "/api/org/beta/registration_tokens/", {});
  const { token } = v.parse(v.object({ token: v.string() }), made);
  await register({ slug: "beta", mode: "desktop", credential: { registrationToken: token } });
}

test("JSON documents of status, start, stop, restart and switch", async () => {
  await using world = await makeNodeWorld();
  const place = join(world.root, "..");
  writeFileSync(world.settings.overlayBinary, engine, { mode: 0o755 });
  const documents: string[] = [];
  const add = (words: readonly string[], ran: Ran) =>
    void documents.push(documentOf(words, { ...ran, place }));
  const note = async (...words: string[]) => add(words, await world.agent([...words, "--json"]));
  /** Notes `status` as soon as the condition holds. */
  const noteWhen = async (isSo: (status: Status) => boolean) => {
    for (let looks = 0; looks < 600; looks++) {
      const ran = await world.agent(["status", "--json"]);
      if (isSo(v.parse(Status, ran.json))) return add(["status"], ran);
      await Bun.sleep(50);
    }
    throw new Error("The status did not appear in time");
  };
  const run = ({ teams }: Status) =>
    teams.length === 2 &&
    teams.every(({ state, last_checkin_at: at }) => state === "running" && typeof at === "string") &&
    // Not before the control plane has told that there are no other nodes.
    teams.every(({ health }) => health?.verdict === "running");
  const onlyOneRuns = ({ teams }: Status) =>
    teams.map(({ state }) => state).join() === "running,stopped" && teams[0]?.health?.verdict === "running";

  await note("status");
  await world.register({ mode: "desktop" });
  await note("status");
  await registerBeta(world);
  await note("start", "acme", "--dry-run");
  const stateDb = ["--state-db-path", join(place, "lib/state.db")];
  const filesBefore = readdirSync(place, { recursive: true });
  await note("--ipc-mode", "socket", "--dry-run", ...stateDb);
  expect(readdirSync(place, { recursive: true })).toEqual(filesBefore);
  const ended = world.agent(["--ipc-mode", "socket", ...stateDb]);
  try {
    await noteWhen(run);
    for (const verb of ["start", "stop", "restart", "switch"]) await note(verb, "acme", "--dry-run");
    await note("status", "acme");
    await note("status", "gamma");
    await note("stop", "acme");
    await note("stop", "acme");
    await note("status");
    await note("start", "acme");
    await note("start", "acme");
    await noteWhen(run);
    await note("restart", "acme");
    await noteWhen(run);
    await note("switch", "acme");
    await noteWhen(onlyOneRuns);
    await note("start", "gamma");
  } finally {
    const daemon = await connectDaemon({ kind: "socket", path: join(place, "cmd.sock") }, realSystem(), {
      patient: true,
    });
    await daemon.request({ action: "shutdown" });
    daemon.close();
    await ended;
  }
  expectGolden("daemon.txt", documents.join("\n"));
}, 120_000);

test("JSON documents of self-update", async () => {
  using directory = temporaryDirectory();
  const place = directory.path;
  const key = makeReleaseKey();
  const target = hostTarget();
  const releases = {
    new: ["0.2.0", key],
    same: ["0.1.0", key],
    strange: ["0.3.0", makeReleaseKey()],
  } as const;
  for (const [name, [version, signer]] of Object.entries(releases)) {
    const executables = { [target]: standIn(version, "exit 0") };
    await makeRelease(join(place, name), { version, executables }, signer);
  }
  // Runs from source, but as a build of 0.1.0 in a directory of its own.
  const bin = join(place, "bin");
  mkdirSync(bin);
  const executable = join(bin, "agent");
  copyFileSync(process.execPath, executable);
  const build = { BUILD_VERSION: "0.1.0", BUILD_TARGET: target, BUILD_RELEASE_KEYS: [key.text] };
  const defined = Object.entries(build).flatMap(([name, value]) => [
    "--define",
    `${name}=${JSON.stringify(value)}`,
  ]);
  const main = join(import.meta.dir, "../../src/main.ts");
  const documents: string[] = [];
  const note = async (...words: string[]) => {
    const places = ["--state-db-path", join(place, "lib/state.db")];
    const argv = [executable, ...defined, main, ...words, "--json", ...places];
    const child = Bun.spawn(argv, { env: {}, stdin: "ignore", stderr: "pipe" });
    const [stdout, status] = await Promise.all([new Response(child.stdout).text(), child.exited]);
    documents.push(documentOf(words, { stdout, status, place }));
  };
  const from = (name: string) => ["--release-url", join(place, name)];
  await note("self-update", "--check", ...from("same"));
  await note("self-update", ...from("same"));
  await note("self-update", "--check", ...from("strange"));
  await note("self-update", "--check", ...from("nowhere"));
  await note("self-update", "--check", ...from("new"));
  await note("self-update", "--dry-run", ...from("new"));
  await note("self-update", ...from("new"));
  expectGolden("self-update.txt", documents.join("\n"));
}, 120_000);
