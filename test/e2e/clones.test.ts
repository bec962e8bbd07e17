// A copied machine: two agents and engines with the keys of one node. Both are told within a minute, the printed cure makes
// two nodes of them, and nothing is left to be told.

import { expect, test } from "bun:test";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { buildAgent, runAgent, startControlPlane } from "../support/agent.ts";
import {
  ask,
  command,
  enginesOf,
  placesBelow,
  registerDesktop,
  startDaemon,
  type Places,
} from "../support/daemon.ts";
import { bridgePort } from "../support/bridge.ts";
import { asRoot, engines } from "../support/engines.ts";
import { makeLan, type Host } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

buildAgent();

/** Each machine checks in within a minute; a busy machine starts late. */
const tellWithinS = 75;

/**
 * Another boot id, as another machine has it: in namespaces of one machine it is the same file. A file that is not of /proc
 * in its place would be that of a container, which reports no mark: so it is the one of the host's name, which a namespace has.
 */
function onMachine(host: Host, bootId: string): Pick<Host, "inside"> {
  const kernel = "/proc/sys/kernel";
  const script = `echo "$1" >${kernel}/hostname && mount --bind ${kernel}/hostname ${kernel}/random/boot_id && shift && exec "$@"`;
  return {
    inside: (argv) => host.inside(["unshare", "--mount", "--uts", "sh", "-c", script, "sh", bootId, ...argv]),
  };
}

const Status = v.object({
  teams: v.array(
    v.looseObject({
      name: v.string(),
      findings: v.optional(v.array(v.looseObject({ kind: v.string() })), []),
    }),
  ),
});

asRoot("a copied machine", () => {
  test("is told on both machines within a minute, and cured by the line that is printed", async () => {
    using directory = temporaryDirectory();
    await using plane = await startControlPlane(join(directory.path, "server"));
    const acme = await makeOrganization(plane);
    using lan = makeLan(["hub", "original", "copy"]);
    const engine = engines.at(-1)?.nebula ?? expect.unreachable();
    const placesOf = (name: string) => placesBelow(join(directory.path, name), engine);
    const [hub, original, copy] = [placesOf("hub"), placesOf("original"), placesOf("copy")];
    const lighthouse = ["--is-lighthouse", "--public-ip", lan.host("hub").address];
    await registerDesktop(acme, hub, await acme.makeToken(["--lighthouse"]), "hub", lighthouse);
    await registerDesktop(acme, original, await acme.makeToken(), "web");
    cpSync(original.configRoot, copy.configRoot, {
      recursive: true,
      preserveTimestamps: true,
      verbatimSymlinks: true,
    });
    // The copy lies at another place here.
    for (const file of new Bun.Glob("**/config.yml").scanSync({ cwd: copy.configRoot, dot: true })) {
      const path = join(copy.configRoot, file);
      writeFileSync(path, readFileSync(path, "utf8").replaceAll(original.configRoot, copy.configRoot));
    }
    await using stack = new AsyncDisposableStack();
    for (const { name } of lan.hosts)
      stack.use(
        await bridgePort(lan.host(name), join(directory.path, name), Number(new URL(plane.url).port)),
      );
    const start = (places: Places, name: string) => {
      return startDaemon(onMachine(lan.host(name), crypto.randomUUID()), places);
    };
    await start(hub, "hub");
    await start(original, "original");
    const began = performance.now();
    await start(copy, "copy");
    const stateOf = async (places: Places) => {
      const { teams } = v.parse(Status, JSON.parse((await command(places, ["status", "--json"])).stdout));
      return teams.map(({ name, findings }) => ({ name, kinds: findings.map(({ kind }) => kind) }))[0];
    };
    const toldAfter = (places: Places) =>
      until(async () => (await stateOf(places))?.kinds.includes("cloned") === true, {
        ms: 150_000,
        everyMs: 500,
      }).then(() => Math.round((performance.now() - began) / 1000));
    const seconds = await Promise.all([original, copy].map(toldAfter));
    for (const each of seconds) expect(each).toBeLessThanOrEqual(tellWithinS);
    const nodeOf = async (name: string) => {
      const json: unknown = await (
        await acme.api("GET", `/api/org/${acme.slug}/nodes/?search=${name}`)
      ).json();
      return v
        .parse(v.array(v.looseObject({ name: v.string(), finding: v.nullable(v.string()) })), json)
        .find((each) => each.name === name);
    };
    expect(await nodeOf("web")).toMatchObject({ finding: "cloned" });
    const events = await acme.api("GET", `/api/org/${acme.slug}/events/?limit=100`);
    expect(await events.text()).toContain('"node.cloned"');
    for (const places of [original, copy]) {
      const { stdout } = await command(places, ["doctor"]);
      expect(stdout).toContain("Another machine uses the keys of this node");
      expect(stdout).toContain("agent up --new-keys --node-name NAME");
    }
    // The same registration as `up` makes, which needs a service manager.
    const cure = [
      "register",
      "--new-keys",
      "--api-base",
      plane.url,
      "--org-slug",
      acme.slug,
      "--registration-token-file",
      "-",
    ];
    const run = async (words: string[]) =>
      runAgent([...cure, "--mode", "desktop", "--no-start", ...words, ...copy.flags], {
        input: await acme.makeToken(),
      });
    expect((await run(["--node-name", "web"])).stderr).toContain("another machine keeps that name");
    const cured = await run(["--node-name", "web2"]);
    expect([cured.status, cured.stderr]).toEqual([0, expect.any(String)]);
    expect(enginesOf(copy)).toEqual([]);
    await ask(copy, { action: "start", team: acme.slug });
    await until(async () => (await nodeOf("web2"))?.finding === null, { ms: 60_000 });
    await until(
      async () => {
        const states = [await stateOf(original), await stateOf(copy)];
        return (
          JSON.stringify(states) ===
          JSON.stringify([
            { name: "web", kinds: [] },
            { name: "web2", kinds: [] },
          ])
        );
      },
      { ms: 240_000, everyMs: 1000 },
    );
    expect(await nodeOf("web")).toMatchObject({ finding: null });
    for (const places of [original, copy]) {
      const { stdout } = await command(places, ["doctor"]);
      expect(stdout).not.toContain("keys of this node");
    }
    for (const places of [hub, original, copy]) await ask(places, { action: "shutdown" });
  }, 900_000);
});
