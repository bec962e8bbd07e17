// A node gets the address of a deleted node, and sends packets in flows that the deleted node had opened. The engine matches
// flows by address, so the control plane makes engines check open flows again before it assigns the address.

import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { join } from "node:path";
import { paths } from "../support/paths.ts";
import { buildAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { allEngines, asRoot, describeEngines } from "../support/engines.ts";
import { openFlows, flow, startListener, takeFlows } from "../support/flow.ts";
import { joinMember, makeMembers, nodesOf, until } from "../support/members.ts";
import { makeLan } from "../support/namespaces.ts";
import { makeOrganization, type Organization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

function database<T>({ dataDirectory }: ControlPlane, use: (db: Database) => T): T {
  using db = new Database(join(dataDirectory, "control.db"));
  db.run("PRAGMA busy_timeout = 5000");
  return use(db);
}

const count = (plane: ControlPlane, where: string) =>
  database(plane, (db) => db.query(`SELECT host FROM addresses WHERE ${where}`).all().length);

async function must(answer: Promise<Response>): Promise<void> {
  const { status } = await answer;
  expect(status).toBeLessThan(300);
}

/** Only members of the group `db` reach the port. */
async function setUp(acme: Organization): Promise<void> {
  for (const protocol of ["tcp", "udp"]) {
    const rule = { direction: "inbound", protocol, ports: `${flow.port}` };
    const sides = { peer: { group: "db" }, target: { any: true } };
    await must(acme.api("POST", "/api/org/acme/firewall_rules/", { ...rule, ...sides }));
  }
}

asRoot("the address of a deleted node", () => {
  describeEngines(
    "taken by another node",
    ({ nebula }) => {
      /** What arrives in the flows of the deleted node. `change`: SQL, what the test changes instead of waiting. */
      async function takeOver(change: string): Promise<string[]> {
        using directory = temporaryDirectory();
        using lan = makeLan(["lighthouse", "a", "b", "c"]);
        await using plane = await startControlPlane(join(directory.path, "server"));
        const acme = await makeOrganization(plane);
        await setUp(acme);
        const first = { ...lan, hosts: lan.hosts.slice(0, 3) };
        await using scene = await makeMembers(acme, first, directory.path, nebula);
        const [, a, b] = scene.members;
        if (a === undefined || b === undefined) throw new Error("Three members");
        await must(acme.api("PATCH", paths.node("acme", b.id), { groups: ["db"] }));
        await until("the configuration is applied", async () =>
          (await nodesOf(acme)).every((each) => each.config_version === each.applied_config_version),
        );
        const arrived = await startListener(a.host);
        const sequences = await openFlows(b.host, a.ip);
        expect(arrived()).toEqual(["tcp hello", "udp hello"]);

        b.daemon.signal("SIGTERM");
        await b.daemon.exited;
        await must(acme.api("DELETE", paths.node("acme", b.id)));
        await until("all nodes have confirmed", () => count(plane, "free_at IS NOT NULL") === 1);
        const token = await acme.makeToken();
        const wish = ["--ip-address", b.ip];
        const joinAsB = () => joinMember(acme, lan.host("c"), directory.path, nebula, token, wish);
        const refusal = await joinAsB().then(
          () => "none",
          (error: unknown) => String(error),
        );
        expect(refusal).toContain("address_taken");
        database(plane, (db) => db.run(`UPDATE addresses SET ${change} WHERE free_at IS NOT NULL`));
        await until("the address is free", () => count(plane, "held_until IS NOT NULL") === 0);
        await using c = await joinAsB();
        expect(c.ip).toBe(b.ip);
        await takeFlows(c.host, a.ip, b.ip, sequences);
        return arrived().slice(2);
      }

      test.concurrent(
        "no packet arrives in its flows",
        async () => expect(await takeOver("free_at = 0")).toEqual([]),
        180_000,
      );

      // Proves that the test above notices. An idle engine would accept the flows even after their timeout.
      test.concurrent(
        "packets would arrive if engines did not check open flows again",
        async () => {
          const arrived = await takeOver("free_at = 0, recheck_version = 0");
          expect(arrived.toSorted()).toEqual(["tcp stolen", "udp stolen"]);
        },
        180_000,
      );
    },
    allEngines,
  );
});
