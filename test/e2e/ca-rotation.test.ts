// The CA of a running network is rotated while all nodes ping each other: no ping is lost (engine 1.6 may lose one on a
// tunnel). The rotation waits for a node that does not confirm, a node that was off catches up, and the server may restart
// in any phase.

import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { decodeBundle } from "../../src/pki/bundle.ts";
import { decodeCaBundle, fingerprint } from "../../src/pki/nebula.ts";
import { Authorities } from "../../src/api/certificates/authorities.ts";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { enginesOf, startDaemon } from "../support/daemon.ts";
import { runSync } from "../support/debian.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeMembers, pingAll, type Member } from "../support/members.ts";
import { lost, lostAt, makeLan, startPing } from "../support/namespaces.ts";
import { makeOrganization, type Organization } from "../support/overlay.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until as untilFound } from "../support/until.ts";

buildAgent();

/**
 * The goal is none. Engine 1.6 keeps the first certificates of a tunnel for its whole life, so its tunnels close when the
 * previous CA leaves the bundle. They are rebuilt at once, but in about half of the rotations of five nodes one ping was
 * under way on such a tunnel.
 */
const mayLose = (version: string) => (version.startsWith("1.6.") ? 1 : 0);

/** A minute for the tunnels, and more for each lighthouse. */
const rotationMs = 180_000;

/** Half as often as in certificate-changes, which long runs do with five nodes: every packet costs each engine time. */
const everyMs = 200;

const names = ["lighthouse", "alpha", "beta", "gamma"];

/** Phases last seconds, and five networks look at once. */
const until = (what: string, isSo: () => Promise<boolean> | boolean, ms = 60_000) =>
  untilFound(isSo, { what, ms, everyMs: 250 });

/** By the API: a command for each of hundreds of looks would take minutes of processor time. */
const show = async ({ api, slug }: Organization) =>
  v.parse(Authorities, await (await api("GET", `/api/org/${slug}/ca/`)).json());
const phaseIs = (acme: Organization, phase: string) =>
  until(`phase ${phase}`, async () => (await show(acme)).rotation.phase === phase, rotationMs);

/** Waits for the end of the rotation. Returns the first time of each phase, on the clock of performance.now(). */
async function watchPhases(acme: Organization): Promise<Map<string, number>> {
  const met = new Map<string, number>();
  const note = async () => {
    const { phase } = (await show(acme)).rotation;
    if (!met.has(phase)) met.set(phase, performance.now());
    return phase === "none";
  };
  await until("the end of the rotation", note, rotationMs);
  return met;
}

const file = ({ places }: Member, name: string) => join(places.configRoot, "acme", name);
const issuerOf = (member: Member) => decodeBundle(readFileSync(file(member, "host.crt"), "utf8"))[0]?.issuer;
const trustedBy = (member: Member) =>
  decodeCaBundle(readFileSync(file(member, "ca.crt"), "utf8")).map(fingerprint);

/** Makes the server believe that a node was silent for an hour. */
async function forget(data: string, id: number): Promise<void> {
  // The server writes the last check-in within a second.
  await Bun.sleep(1200);
  const db = new Database(join(data, "control.db"));
  db.run("PRAGMA busy_timeout = 5000");
  db.run("UPDATE sightings SET last_checkin_at = last_checkin_at - 3600000 WHERE node_id = ?", [id]);
  db.close();
}

asRoot("CA rotation", () => {
  describeEngines("of four nodes and one that is off", ({ nebula, nebulaCert, version }) => {
    // Most of the time is waiting, so the engines run concurrently.
    test.concurrent(
      "keeps the tunnels; a node that was off catches up",
      async () => {
        using directory = temporaryDirectory();
        using lan = makeLan([...names, "late"]);
        await using plane = await startControlPlane(join(directory.path, "server"));
        const acme = await makeOrganization(plane);
        await using scene = await makeMembers(acme, lan, directory.path, nebula);
        const late = scene.members.at(-1);
        if (late === undefined) throw new Error("No late member");
        const members = scene.members.slice(0, -1);
        late.daemon.signal("SIGTERM");
        await late.daemon.exited;
        await forget(join(directory.path, "server"), late.id);

        const before = await show(acme);
        const pings = await pingAll(members, everyMs);
        const begun = await acme.api("POST", "/api/org/acme/ca/rotate/", { action: "start" });
        expect(begun.status).toBe(200);
        const from = performance.now();
        const phases = await watchPhases(acme);
        const seconds = (at: number) => ((at - from) / 1000).toFixed(1);
        const times = [...phases].map(([phase, at]) => `${phase} ${seconds(at)}`).join(", ");
        process.stderr.write(`engine ${version}, phases met after s: ${times}\n`);
        // Engines check their tunnels every few seconds: those with the previous CA would close now.
        await Bun.sleep(8000);
        await Promise.all(pings.map((ping) => ping.reply(20_000)));
        await Promise.all(pings.map((ping) => ping.stop()));
        const sent = pings.reduce((sum, { replies }) => sum + replies.length, 0);
        const gone = pings.flatMap((ping) => lostAt(ping, everyMs));
        process.stderr.write(
          `lost ${gone.length} of ${sent} pings, after s: ${gone.map(seconds).join(" ")}\n`,
        );
        for (const ping of pings) expect(lost(ping).length).toBeLessThanOrEqual(mayLose(version));

        const { cas } = await show(acme);
        const now = cas.filter(({ state }) => state === "active").map((ca) => ca.fingerprint);
        expect(now.filter((each) => before.cas.some((ca) => ca.fingerprint === each))).toEqual([]);
        for (const member of members) {
          expect(now).toContain(issuerOf(member) ?? "");
          expect(trustedBy(member)).toEqual([issuerOf(member) ?? ""]);
          runSync([nebulaCert, "verify", "-ca", file(member, "ca.crt"), "-crt", file(member, "host.crt")]);
          runSync(["openssl", "verify", "-CAfile", file(member, "node.crt"), file(member, "node.crt")]);
        }
        expect(trustedBy(late)).not.toEqual(trustedBy(members[0] ?? late));
        late.daemon = await startDaemon(late.host, late.places);
        const ping = startPing(late.host, members[1]?.ip ?? "");
        await ping.reply(40_000);
        await ping.stop();
        expect(trustedBy(late)).toEqual([issuerOf(late) ?? ""]);
      },
      300_000,
    );
  });

  // Mostly about the server. The engines without and with a control socket; long runs take all of them.
  describeEngines(
    "with restarts",
    ({ nebula, version }) => {
      test.concurrent(
        "waits for a stopped engine, continues after restarts of the server, and rolls back",
        async () => {
          using directory = temporaryDirectory();
          using lan = makeLan(["lighthouse", "alpha", "beta"]);
          const data = join(directory.path, "server");
          let plane = await startControlPlane(data);
          await using stack = new AsyncDisposableStack();
          stack.defer(async () => void (await plane.stop()));
          const port = Number(new URL(plane.url).port);
          const acme = await makeOrganization(plane);
          const { members } = stack.use(await makeMembers(acme, lan, directory.path, nebula));
          const restart = async () => {
            await plane.stop();
            plane = await startControlPlane(data, [], port);
          };
          const still = members[2];
          const [engine] = still === undefined ? [] : enginesOf(still.places);
          if (still === undefined || engine === undefined) throw new Error("No engine to stop");
          const old = issuerOf(still);

          const rotate = async (...flags: string[]) => {
            const { status, stderr } = await plane.admin(["ca", "rotate", "acme", ...flags]);
            expect(`${status} ${stderr}`).toStartWith("0 ");
            expect(stderr.includes("can lose packets")).toBe(flags.includes("--now"));
          };
          const waitsFor = (phase: string) =>
            until(`waiting for one in ${phase}`, async () => {
              const { rotation } = await show(acme);
              return rotation.phase === phase && rotation.waiting_for.join() === String(still.id);
            });
          process.kill(engine, "SIGSTOP");
          await rotate();
          await waitsFor("trust");
          await restart();
          // Longer than the interval of the server's checks, and than the other nodes need to check in.
          await Bun.sleep(3000);
          await waitsFor("trust");
          process.kill(engine, "SIGCONT");
          await phaseIs(acme, "issue");
          await rotate("--pause");
          process.kill(engine, "SIGSTOP");
          await restart();
          await rotate("--resume");
          await waitsFor("issue");
          process.kill(engine, "SIGCONT");
          await until("time for the tunnels", async () => (await show(acme)).rotation.next_step_at !== null);
          await rotate("--now");
          await until("the end of issue", async () =>
            ["retire", "none"].includes((await show(acme)).rotation.phase),
          );
          await restart();
          await phaseIs(acme, "none");
          expect(issuerOf(still)).not.toBe(old);

          // Another rotation, rolled back after the first certificates were sent.
          const present = issuerOf(still);
          await rotate();
          await phaseIs(acme, "issue");
          await until("a certificate of the next CA", () =>
            members.some((each) => issuerOf(each) !== present),
          );
          const pings = await pingAll(members, everyMs);
          await rotate("--rollback");
          await phaseIs(acme, "none");
          await Bun.sleep(3000);
          await Promise.all(pings.map((ping) => ping.reply(20_000)));
          await Promise.all(pings.map((ping) => ping.stop()));
          for (const ping of pings) expect(lost(ping).length).toBeLessThanOrEqual(mayLose(version));
          for (const member of members) expect([issuerOf(member)]).toEqual([present]);
          for (const member of members) expect(trustedBy(member)).toEqual([present ?? ""]);
        },
        360_000,
      );
    },
    inFull ? undefined : ["debian", "1.12"],
  );
});
