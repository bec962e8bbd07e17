// An organization moves from certificates of version 1 to version 2 while its nodes talk: no ping is lost. With an IPv6
// network each engine restarts once, one node at a time, and IPv6 works at the end.

import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { decodeBundle } from "../../src/pki/nebula.ts";
import { ErrorBody, Node, paths } from "../../src/protocol.ts";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { bridgePort } from "../support/bridge.ts";
import { placesBelow, registerDesktop, startDaemon, untilStatus, type Places } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { lost, makeLan, startPing, type Host, type Lan, type Pinger } from "../support/namespaces.ts";
import { makeOrganization, type Organization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const names = ["lighthouse", "alpha", "beta"];

type Member = { name: string; host: Host; places: Places; id: number; ip: string };

/** Three nodes whose engines are held by daemons that stay checked in. */
async function makeMembers(acme: Organization, lan: Lan, directory: string, nebula: string) {
  const stack = new AsyncDisposableStack();
  const token = await acme.makeToken(["--uses", "3", "--lighthouse"]);
  const members: Member[] = [];
  for (const name of names) {
    const host = lan.host(name);
    const places = placesBelow(join(directory, name), nebula);
    const hub = name === "lighthouse" ? ["--is-lighthouse", "--public-ip", host.address] : [];
    await registerDesktop(acme, places, token, name, hub);
    stack.use(await bridgePort(host, join(directory, name), Number(new URL(acme.plane.url).port)));
    const daemon = await startDaemon(host, places);
    stack.defer(async () => {
      daemon.signal("SIGTERM");
      await daemon.exited;
    });
    await untilStatus(places, "acme", ({ state }) => state === "running", 20_000);
    const node = (await nodesOf(acme)).find((each) => each.name === name);
    if (node === undefined) throw new Error(`No node ${name}`);
    members.push({ name, host, places, id: node.id, ip: node.ip_address });
  }
  return { members, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

async function nodesOf(acme: Organization): Promise<Node[]> {
  return v.parse(v.array(Node), await (await acme.api("GET", paths.nodes("acme"))).json());
}

/** Everybody with everybody, both ways where it is not the lighthouse. */
async function pingAll(members: readonly Member[]): Promise<Pinger[]> {
  const pairs = members.flatMap((from) =>
    members.filter((to) => to !== from && from.name !== "lighthouse").map((to) => ({ from, to })),
  );
  const pings = pairs.map(({ from, to }) => startPing(from.host, to.ip));
  await Promise.all(pings.map((ping) => ping.reply(20_000)));
  return pings;
}

/** A step is refused until the one before is in force on every node. */
async function step(acme: Organization, version: "both" | 2): Promise<void> {
  for (let waited = 0; ; waited += 200) {
    const answer = await acme.api("PATCH", paths.organization("acme"), { certificate_version: version });
    if (answer.status === 200) return;
    const text = await answer.text();
    if (answer.status !== 409 || waited > 60_000) throw new Error(`To ${version}: ${answer.status} ${text}`);
    await Bun.sleep(200);
  }
}

function versionsOn({ places }: Member): number[] {
  return decodeBundle(readFileSync(join(places.configRoot, "acme/host.crt"), "utf8")).map(
    ({ version }) => version,
  );
}

function engineLog({ places }: Member): string {
  const logs = join(places.stateDb, "../logs");
  return readdirSync(logs)
    .filter((name) => name.startsWith("acme"))
    .map((name) => readFileSync(join(logs, name), "utf8"))
    .join("");
}

async function until(what: string, isSo: () => Promise<boolean> | boolean): Promise<void> {
  for (let waited = 0; !(await isSo()); waited += 100) {
    if (waited > 60_000) throw new Error(`${what} did not come about`);
    await Bun.sleep(100);
  }
}

const readyTimes = (member: Member) =>
  [...engineLog(member).matchAll(/^.*Nebula interface is active.*$/gm)].map(([line]) =>
    Date.parse(v.parse(v.object({ time: v.string() }), JSON.parse(line)).time),
  );

asRoot("certificate versions", () => {
  describeEngines("from 1 to both to 2", ({ nebula, version }) => {
    const isModern = Bun.semver.order(version, "1.10.0") >= 0;

    test(
      isModern ? "no ping is lost" : "is refused while such an engine is known",
      async () => {
        using directory = temporaryDirectory();
        using lan = makeLan(names);
        await using plane = await startControlPlane(join(directory.path, "server"));
        const acme = await makeOrganization(plane);
        await using scene = await makeMembers(acme, lan, directory.path, nebula);
        const { members } = scene;
        const pings = await pingAll(members);
        if (!isModern) {
          const refused = await acme.api("PATCH", paths.organization("acme"), {
            certificate_version: "both",
          });
          const { code, detail } = v.parse(ErrorBody, await refused.json());
          expect({ status: refused.status, code }).toEqual({ status: 409, code: "conflict" });
          for (const name of names) expect(detail).toContain(`${name} (${version})`);
        } else {
          await step(acme, "both");
          await until("both versions", () => members.every((each) => versionsOn(each).join() === "1,2"));
          await step(acme, 2);
          await until("version 2", () => members.every((each) => versionsOn(each).join() === "2"));
          // Tunnels are made anew once their certificates are not the present ones.
          await Bun.sleep(6000);
          expect(members.map((each) => readyTimes(each).length)).toEqual([1, 1, 1]);
          for (const each of await nodesOf(acme)) expect(each.certificate?.version).toBe(2);
        }
        await Promise.all(pings.map((ping) => ping.reply(2000)));
        await Promise.all(pings.map((ping) => ping.stop()));
        expect(pings.map(lost)).toEqual(pings.map(() => []));
      },
      120_000,
    );

    if (!isModern) return;
    test("with an IPv6 network: one restart each, one after the other, and IPv6 at the end", async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(names);
      await using plane = await startControlPlane(join(directory.path, "server"));
      const acme = await makeOrganization(plane);
      await using scene = await makeMembers(acme, lan, directory.path, nebula);
      const { members } = scene;
      const given = await acme.api("PATCH", paths.organization("acme"), { network6: "fd77::/64" });
      expect(given.status).toBe(200);
      expect((await nodesOf(acme)).map((each) => each.ip_address6)).toEqual([null, null, null]);
      const pings = await pingAll(members);
      await step(acme, "both");
      await until("both versions", () => members.every((each) => versionsOn(each).join() === "1,2"));
      await step(acme, 2);
      await until("version 2", () => members.every((each) => versionsOn(each).join() === "2"));
      await Bun.sleep(3000);
      await Promise.all(pings.map((ping) => ping.stop()));

      const times = members.map(readyTimes);
      expect(times.map((each) => each.length)).toEqual([2, 2, 2]);
      const restarted = times.map((each) => each[1] ?? 0);
      // The lighthouse comes last.
      expect(restarted[0]).toBe(Math.max(...restarted));
      const gone = pings.map((ping) => lost(ping).length);
      process.stderr.write(`pings lost by the restarts of both ends: ${gone.join(" ")}\n`);
      // Two for each restart on a quiet machine.
      for (const each of gone) expect(each).toBeLessThan(20);

      const nodes = await nodesOf(acme);
      expect(nodes.map((each) => each.ip_address6)).toEqual(["fd77::1", "fd77::2", "fd77::3"]);
      const ping6 = nodes.flatMap((to) =>
        members.filter(({ id }) => id !== to.id).map(({ host }) => startPing(host, to.ip_address6 ?? "")),
      );
      await Promise.all(ping6.map((ping) => ping.reply(20_000)));
      await Promise.all(ping6.map((ping) => ping.stop()));
    }, 180_000);
  });
});
