// An organization migrates from certificate version 1 to 2 while its nodes ping each other: no ping is lost. With an IPv6
// network, each engine restarts once, one node at a time, and IPv6 works at the end.

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { decodeBundle } from "../../src/pki/bundle.ts";
import { ErrorBody } from "../../src/protocol/error-body.ts";
import { paths } from "../support/paths.ts";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { stepTo } from "../support/certificate-change.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { engineLog, makeMembers, nodesOf, pairsOf, pingAll, until, type Member } from "../support/members.ts";
import { lost, lostAt, makeLan, startPing } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const names = ["lighthouse", "alpha", "beta"];

function versionsOn({ places }: Member): number[] {
  return decodeBundle(readFileSync(join(places.configRoot, "acme/host.crt"), "utf8")).map(
    ({ version }) => version,
  );
}

/** An engine stops and starts within this time. The last other node restarted at least 10 s earlier. */
const lighthouseDownMs = 4000;

const readyTimes = (member: Member) =>
  [...engineLog(member).matchAll(/^.*Nebula interface is active.*$/gm)].map(([line]) =>
    Date.parse(v.parse(v.object({ time: v.string() }), JSON.parse(line)).time),
  );

asRoot("certificate versions", () => {
  describeEngines("from 1 to both to 2 and back", ({ nebula, version }) => {
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
          // Migrate to version 2 and back.
          for (const [to, there] of [
            ["both", "1,2"],
            [2, "2"],
            ["both", "1,2"],
            [1, "1"],
          ] as const) {
            await stepTo(acme, to);
            await until(`version ${to}`, () => members.every((each) => versionsOn(each).join() === there));
          }
          // Tunnels are rebuilt when their certificates are no longer the present ones.
          await Bun.sleep(6000);
          expect(members.map((each) => readyTimes(each).length)).toEqual([1, 1, 1]);
          for (const each of await nodesOf(acme)) expect(each.certificate?.version).toBe(1);
        }
        await Promise.all(pings.map((ping) => ping.reply(20_000)));
        await Promise.all(pings.map((ping) => ping.stop()));
        expect(pings.map(lost)).toEqual(pings.map(() => []));
      },
      240_000,
    );

    if (!isModern) return;
    // With two lighthouses the order of their restarts matters too.
    for (const hubs of [1, 2]) {
      test.concurrent(
        `with an IPv6 network and ${hubs} lighthouses, nodes restart once, one after the other, and IPv6 works`,
        () => addSecondAddresses(nebula, hubs),
        180_000,
      );
    }
  });
});

async function addSecondAddresses(nebula: string, hubs: number): Promise<void> {
  using directory = temporaryDirectory();
  using lan = makeLan(["lighthouse", "lighthouse-2"].slice(0, hubs).concat("alpha", "beta"));
  await using plane = await startControlPlane(join(directory.path, "server"));
  const acme = await makeOrganization(plane);
  await using scene = await makeMembers(acme, lan, directory.path, nebula, { lighthouses: hubs });
  const { members } = scene;
  const given = await acme.api("PATCH", paths.organization("acme"), { network6: "fd77::/64" });
  expect(given.status).toBe(200);
  expect((await nodesOf(acme)).map((each) => each.ip_address6)).toEqual(members.map(() => null));
  const pairs = pairsOf(members);
  const pings = await pingAll(members);
  // Not through an engine: shows what the machine itself loses.
  const control = startPing(lan.host("alpha"), lan.host("beta").address);
  await stepTo(acme, "both");
  await until("both versions", () => members.every((each) => versionsOn(each).join() === "1,2"));
  await stepTo(acme, 2);
  await until("version 2", () => members.every((each) => versionsOn(each).join() === "2"));
  // Longer than the interval at which nodes report to a lighthouse.
  await Bun.sleep(12_000);
  await Promise.all([control, ...pings].map((ping) => ping.stop()));

  const times = members.map(readyTimes);
  expect(times.map((each) => each.length)).toEqual(members.map(() => 2));
  const restarted = times.map((each) => each[1] ?? 0);
  // The lighthouses restart last, one after the other.
  const [first = 0, second = Infinity] = restarted.slice(0, hubs).sort((a, b) => a - b);
  expect(first).toBeGreaterThan(Math.max(...restarted.slice(hubs)));
  expect(second - first).toBeGreaterThan(lighthouseDownMs);
  const gone = pings.map((ping) => lost(ping).length);
  process.stderr.write(
    `${hubs} lighthouses, pings lost by the restarts of both ends: ${gone.join(" ")}; by the machine: ${lost(control).length}\n`,
  );
  // On an idle machine two pings are lost for each restart.
  for (const each of gone) expect(each).toBeLessThan(10);
  // The restarts of lighthouses cost the other nodes nothing.
  const between = pings.filter((_, at) => pairs[at]?.every((each) => members.indexOf(each) >= hubs) === true);
  expect(between.length).toBe(1);
  const soonest = first - lighthouseDownMs;
  expect(between.flatMap(lostAt).filter((at) => performance.timeOrigin + at > soonest)).toEqual([]);

  const nodes = await nodesOf(acme);
  expect(nodes.map((each) => each.ip_address6)).toEqual(members.map((_, at) => `fd77::${at + 1}`));
  const ping6 = nodes.flatMap((to) =>
    members.filter(({ id }) => id !== to.id).map(({ host }) => startPing(host, to.ip_address6 ?? "")),
  );
  await Promise.all(ping6.map((ping) => ping.reply(20_000)));
  await Promise.all(ping6.map((ping) => ping.stop()));
}
