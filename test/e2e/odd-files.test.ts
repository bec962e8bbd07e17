// A FIFO, a device, a directory, a link or a huge file in place of any file, for each of the programs: nothing hangs, an
// organization does not stop the others, and SIGTERM ends what runs.

import { expect, test } from "bun:test";
import {
  cpSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { removeTree } from "../../src/base/files.ts";
import { agent, buildAgent, cleanEnvironment, startControlPlane } from "../support/agent.ts";
import { placesBelow, registerDesktop, startDaemon, untilStatus, type Places } from "../support/daemon.ts";
import { runSync } from "../support/debian.ts";
import { asRoot } from "../support/engines.ts";
import { makeLan, type Host } from "../support/namespaces.ts";
import { makeOrganization, owner } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const kinds: Record<string, (path: string) => void> = {
  "a FIFO": (path) => void runSync(["mkfifo", path]),
  "a device": (path) => symlinkSync("/dev/zero", path),
  "a directory": (path) => mkdirSync(path),
  "a loop of links": (path) => symlinkSync(basename(path), path),
  "a huge file": (path) => {
    writeFileSync(path, "");
    truncateSync(path, 2 ** 40);
  },
};

/** What an organization's directory has only at times. */
const seldom = [
  "api-ca.crt",
  "hosts.json",
  "lock",
  "orders.json",
  "overrides.yml",
  "permissions.json",
  "revoked",
];

function putInPlace(path: string, kind: string): void {
  removeTree(path);
  mkdirSync(dirname(path), { recursive: true });
  kinds[kind]?.(path);
}

/** All files below a directory, relative. */
function filesBelow(directory: string): string[] {
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory()
      ? filesBelow(join(directory, entry.name)).map((name) => join(entry.name, name))
      : [entry.name],
  );
}

type Ended = { status: number; text: string };

/** Runs it to its end. One that hangs is killed, and SIGKILL is then its status. */
async function ended(
  words: readonly string[],
  { inside = (argv: readonly string[]) => [...argv], termAfterMs = 0 } = {},
): Promise<Ended> {
  const child = Bun.spawn(inside([agent, ...words]), {
    env: cleanEnvironment(),
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const term = termAfterMs === 0 ? undefined : setTimeout(() => child.kill("SIGTERM"), termAfterMs);
  const kill = setTimeout(() => child.kill("SIGKILL"), 30_000 + termAfterMs);
  const texts = [new Response(child.stdout).text(), new Response(child.stderr).text()];
  const status = await child.exited;
  clearTimeout(term);
  clearTimeout(kill);
  return { status, text: (await Promise.all(texts)).join("") };
}

const hung = 137;

/** An organization for each file, which has the odd one; its node-config.json must name the directory. */
function plantEach(root: string, kind: string): string[] {
  const acme = join(root, "acme");
  const files = [...new Set([...filesBelow(acme), ...seldom])];
  const slugs = files.map((_, at) => `odd-${at}`);
  for (const [at, file] of files.entries()) {
    const directory = join(root, `odd-${at}`);
    cpSync(acme, directory, { recursive: true, verbatimSymlinks: true });
    for (const name of filesBelow(directory).filter((each) => each.endsWith(".json"))) {
      const path = join(directory, name);
      if (!lstatSync(path).isSymbolicLink())
        writeFileSync(path, readFileSync(path, "utf8").replaceAll('"acme"', `"odd-${at}"`));
    }
    putInPlace(join(directory, file), kind);
  }
  putInPlace(join(root, "in-place"), kind);
  return slugs;
}

/** The daemon, with the healthy organization beside the odd ones. */
async function daemonRuns(host: Host, places: Places): Promise<void> {
  const daemon = await startDaemon(host, places);
  await untilStatus(places, "acme", ({ state }) => state !== "stopped" && state !== "starting");
  const { status, text } = await ended(["status", ...places.flags]);
  expect(status).not.toBe(hung);
  expect(text).toMatch(/^acme +(running|degraded)/m);
  daemon.signal("SIGTERM");
  expect(await daemon.exited).toBe(0);
}

asRoot("an odd file in place of each file", () => {
  test("an organization's, and the state's: status, doctor and the daemon go on for the others, and end", async () => {
    using temporary = temporaryDirectory();
    const places = placesBelow(join(temporary.path, "desk"), "/usr/bin/nebula");
    {
      await using plane = await startControlPlane(join(temporary.path, "server"));
      const acme = await makeOrganization(plane);
      await registerDesktop(acme, places, await acme.makeToken(), "desk");
    }
    for (const kind of ["a FIFO", "a device"]) {
      using lan = makeLan(["desk"]);
      const desk = lan.host("desk");
      const there = placesBelow(join(temporary.path, kind.replaceAll(" ", "-")), "/usr/bin/nebula");
      cpSync(places.configRoot, there.configRoot, { recursive: true, verbatimSymlinks: true });
      const slugs = plantEach(there.configRoot, kind);
      const status = await ended(["status", ...there.flags], desk);
      for (const slug of slugs) expect(status.text).toMatch(new RegExp(`^${slug} `, "m"));
      // The listing, which must not load node:fs, does not see a FIFO.
      if (kind !== "a FIFO") expect(status.text).toContain(`${there.configRoot}/in-place is a link`);
      expect((await ended(["doctor", ...there.flags], desk)).status).toBe(1);
      await daemonRuns(desk, there);
      for (const file of [there.stateDb, `${there.stateDb}.stopped`, `${there.stateDb}.lock`]) {
        putInPlace(file, kind);
        for (const words of [["status"], ["--ipc-mode", "socket"], ["--ipc-mode", "socket", "--dry-run"]])
          expect(
            (await ended([...words, ...there.flags], { ...desk, termAfterMs: 700 })).status,
            `${kind}, ${file}, ${words.join(" ")}`,
          ).not.toBe(hung);
        removeTree(file);
      }
    }
  });

  test("the config root: each program says so with its status", async () => {
    using temporary = temporaryDirectory();
    mkdirSync(join(temporary.path, "lib"));
    const roots = [...Object.keys(kinds), "too long"].map((kind): [string, string] => {
      const path = join(temporary.path, kind.replaceAll(" ", "-"));
      if (kind === "too long") return [kind, join(path, "long/".repeat(1000))];
      putInPlace(path, kind);
      return [kind, path];
    });
    for (const [kind, configRoot] of roots) {
      const flags = placesBelow(temporary.path, "/usr/bin/nebula").flags.with(1, configRoot);
      for (const words of [["status"], ["doctor"], ["--ipc-mode", "socket"]]) {
        const { status, text } = await ended([...words, ...flags], { termAfterMs: 1000 });
        expect(status, `${kind}, ${words.join(" ")}: ${text}`).not.toBe(hung);
        if (words[0] === "--ipc-mode" && kind !== "a directory") expect(status, `${kind}: ${text}`).toBe(1);
        // What was opened is closed: the next daemon finds neither lock nor socket.
        expect(readdirSync(join(temporary.path, "lib")).filter((name) => name.endsWith(".lock"))).toEqual([]);
      }
    }
  });

  test("the control plane's: it starts or says why not, and ends", async () => {
    using temporary = temporaryDirectory();
    const data = join(temporary.path, "server");
    {
      await using plane = await startControlPlane(data, ["--tls", "auto"]);
      await plane.admin(["user", "create", owner.email, "--password-file", "-"], owner.password);
    }
    const files = [...filesBelow(data), "control.db-wal", "control.db-shm"];
    for (const kind of Object.keys(kinds)) {
      for (const file of files) {
        const copy = join(temporary.path, "copy");
        removeTree(copy);
        cpSync(data, copy, { recursive: true });
        putInPlace(join(copy, file), kind);
        const where = ["--data-dir", copy, "--tls", "auto", "--listen", "127.0.0.1:0"];
        const { status, text } = await ended(["serve", ...where], { termAfterMs: 1000 });
        expect(status, `${kind}, ${file}: ${text}`).not.toBe(hung);
      }
    }
  });
});
