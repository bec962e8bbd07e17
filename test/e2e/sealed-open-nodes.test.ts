// Open nodes under a seal, which trust the CA of the control plane too: what a thief with its key cannot take over, because they
// find each other in the sealed network. Real nodes, real engines, real packets.

import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readYaml } from "../../src/node/files/config/read-yaml.ts";
import { listOf, valueAt } from "../../src/base/yaml.ts";
import { buildAgent, runAgent } from "../support/agent.ts";
import { enginesOf } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { agents, behindDb, ports, Scene, sender, streams, type Target } from "../support/sealed-scene.ts";
import type { Host } from "../support/namespaces.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

buildAgent();

const inside = ["hub", "db", "admin"];
const toDb: Target[] = [
  ["db", "group"],
  ["db", "name"],
];
/** Beyond the exit. */
const internet = "198.51.100.9";
const all: Target[] = [...toDb, ["db", "none"], ["web", "group"], ["web", "name"]];

/** Sends a line every 40 ms on each connection. */
const server = `
  for (const port of [${Object.values(streams).join()}])
    Bun.listen({ hostname: "::", port, socket: {
      open(socket) { let sent = 0; socket.data = setInterval(() => socket.write(++sent + "\\n"), 40); },
      close(socket) { clearInterval(socket.data); }, data() {}, error() {} } });
  setInterval(() => {}, 1000);`;
/** Appends what it gets to a file, and "end" when the connection ends. */
const client = (to: string, port: number, file: string) => `
  const { appendFileSync } = require("node:fs");
  const add = (text) => appendFileSync(${JSON.stringify(file)}, text);
  for (let isOpen = false; !isOpen; await Bun.sleep(100)) try {
    await Bun.connect({ hostname: ${JSON.stringify(to)}, port: ${port}, socket: {
      data(_, bytes) { add(bytes.toString()); }, close() { add("end"); }, error() { add("end"); } } });
    isOpen = true; } catch {}
  setInterval(() => {}, 1000);`;

class OpenScene extends Scene {
  #streams = 0;

  /** A TCP connection of admin to db. `got`: all that came by it. */
  stream(to: string, port: number): { got(): string } {
    const file = join(this.root, `stream-${++this.#streams}`);
    writeFileSync(file, "");
    this.lan.host("admin").spawn([process.execPath, "-e", client(to, port, file)]);
    return { got: () => readFileSync(file, "utf8") };
  }

  fromAdmin(ms?: number): Promise<string[]> {
    const enough = (found: string[]) => found.length === toDb.length;
    return this.packets("admin", toDb, { enough, at: this.insideOf, ...(ms === undefined ? {} : { ms }) });
  }

  /** Admin has no tunnel any more, and asks its lighthouse again. */
  async restartAdmin(): Promise<void> {
    const { places } = this.member("admin");
    const before = enginesOf(places);
    for (const pid of before) process.kill(pid, "SIGKILL");
    await until(() => enginesOf(places).some((pid) => !before.includes(pid)), {
      what: "another engine of admin",
      ms: 30_000,
    });
  }

  /** Whether packets of admin to the network behind db arrive there. */
  async arrivesBehindDb(): Promise<boolean> {
    const text = `behind-${++this.#streams}`;
    const child = this.lan
      .host("admin")
      .spawn([process.execPath, "-e", sender([[behindDb.address, ports.group]], text)]);
    const isThere = () => readFileSync(this.heardBy("db"), "utf8").includes(`${ports.group} ${text}\n`);
    try {
      await until(isThere, { what: "a packet for the network behind db", ms: 15_000 });
    } finally {
      child.kill("SIGKILL");
      await child.exited;
    }
    return isThere();
  }

  /** db is an exit, and admin uses it: its only way to the address, which is on web. */
  async useExit(): Promise<void> {
    const [web, db] = ["web", "db"].map((name) => this.lan.host(name)) as [Host, Host];
    web.run(["ip", "addr", "add", `${internet}/32`, "dev", "lo"]);
    db.run(["ip", "route", "add", "default", "via", web.address]);
    db.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"]);
    const type = async (name: string, words: string[]) => {
      const { host, places } = this.member(name);
      const { status, stderr } = await runAgent([...words, ...places.flags], { inside: host.inside });
      if (status !== 0) throw new Error(`${words.join(" ")}: ${stderr}`);
    };
    await type("db", ["up", "--advertise-exit", "--wait", "1s"]);
    this.makeExit("db");
    await this.sign("enforce");
    await this.send(this.honest);
    await this.told(agents, "", 60_000);
    await type("admin", ["exit", "use", "db"]);
  }

  /** Until an echo of the internet comes back to admin. */
  async reachesInternet(): Promise<void> {
    const ping = this.lan.host("admin").inside(["ping", "-n", "-c", "1", "-W", "1", internet]);
    await until(() => Bun.spawnSync(ping).exitCode === 0, { what: "an echo by the exit", ms: 30_000 });
  }

  /** His certificate has the IPv4 address of this node. He answers for it, and is a lighthouse and relay. */
  async takes(name: string): Promise<void> {
    const groups = name === "admin" ? ["admins"] : [];
    const everything = [{ port: "any", proto: "any", host: "any" }];
    await this.startThief(
      this.online,
      { name, networks: [`${this.addressOf(name)}/16`], unsafeNetworks: [], groups },
      {
        relay: { am_relay: true, use_relays: true },
        firewall: { outbound: everything, inbound: everything },
      },
    );
  }
}

asRoot("with root", () => {
  describeEngines(
    "a thief of a control plane against open nodes in the sealed network",
    (engine) => {
      test("takes over no flow, lighthouse, relay or route of theirs", async () => {
        using directory = temporaryDirectory();
        await using scene = new OpenScene(engine, directory.path, inside);
        await scene.open();
        const [db, admin, thief] = ["db", "admin", "thief"].map((name) => scene.lan.host(name)) as [
          Host,
          Host,
          Host,
        ];
        for (const host of [db, thief])
          host.run(["ip", "addr", "add", `${behindDb.address}/32`, "dev", "lo"]);
        db.spawn([process.execPath, "-e", server]);
        await scene.send(scene.honest);
        await scene.told(agents, "", 60_000);
        await scene.sign("enforce");
        await scene.send(scene.honest);
        await scene.told(agents, "", 60_000);

        const config = readYaml(
          readFileSync(join(scene.member("admin").places.configRoot, "acme/config.yml"), "utf8"),
          "config.yml",
        );
        const hub6 = scene.insideOf("hub");
        expect(listOf(valueAt(config, "lighthouse.hosts"))).toEqual([hub6]);
        expect(listOf(valueAt(config, "relay.relays"))).toEqual([hub6, scene.addressOf("hub")]);
        expect(valueAt(config, "tun.unsafe_routes")).toEqual([
          { route: behindDb.network, via: scene.insideOf("db") },
        ]);

        // By the lighthouse alone: no other node says where db is.
        expect(await scene.fromAdmin(30_000)).toEqual(["db group", "db name"]);
        expect(await scene.arrivesBehindDb()).toBeTrue();
        // What admin may do by its certificate is not permitted at the address that a thief can take.
        expect(await scene.packets("admin", toDb, { ms: 1500 })).toEqual([]);

        // Both ways with a node that is outside of the sealed network.
        expect(await scene.packets("admin", [["web", "web"]])).toEqual(["web web"]);
        scene.lan.host("web").run(["ping", "-c", "1", "-W", "10", scene.addressOf("db")]);

        // He has the IPv4 address of admin, and a tunnel with db by it. What that does to a flow between IPv4 addresses:
        // test/node/engine/two-authorities.test.ts.
        const kept = scene.stream(scene.insideOf("db"), streams.group);
        await until(() => kept.got().includes("20\n"), { what: "the connection", ms: 30_000 });
        await scene.takes("admin");
        thief.run(["ping", "-c", "1", "-W", "10", scene.addressOf("db")]);
        const lines = kept.got().split("\n").length;
        await until(() => kept.got().split("\n").length > lines + 50, {
          what: "more lines by the connection",
        });
        expect(kept.got()).not.toContain("end");
        expect(await scene.packets("thief", all, { ms: 1500 })).toEqual([]);
        expect(await scene.packets("thief", [["web", "web"]])).toEqual(["web web"]);
        expect(await scene.fromAdmin()).toEqual(["db group", "db name"]);

        // The sealed address is beyond the limit of his CA: no node has a tunnel with him.
        await scene.startThief(scene.online, {
          version: 2,
          name: "admin",
          networks: [`${scene.addressOf("admin")}/16`, `${scene.insideOf("admin")}/64`],
          groups: ["admins"],
        });
        expect(await scene.packets("thief", [...all, ["web", "web"]], { ms: 2000 })).toEqual([]);

        // The lighthouse.
        await scene.takes("hub");
        await scene.restartAdmin();
        expect(await scene.fromAdmin(30_000)).toEqual(["db group", "db name"]);
        // The exit, which admin finds by its sealed address.
        await scene.useExit();
        await scene.reachesInternet();
        const used = readYaml(
          readFileSync(join(scene.member("admin").places.configRoot, "acme/config.yml"), "utf8"),
          "config.yml",
        );
        expect(listOf(valueAt(used, "tun.unsafe_routes"))).toContainEqual({
          route: "0.0.0.0/0",
          via: scene.insideOf("db"),
          install: false,
        });
        // The router and exit.
        await scene.takes("db");
        await scene.restartAdmin();
        expect(await scene.fromAdmin(30_000)).toEqual(["db group", "db name"]);
        expect(await scene.arrivesBehindDb()).toBeTrue();
        await scene.reachesInternet();
        // The relay: both ends have no direct way.
        await scene.takes("hub");
        admin.run(["ip", "route", "add", "blackhole", `${db.address}/32`]);
        db.run(["ip", "route", "add", "blackhole", `${admin.address}/32`]);
        await scene.restartAdmin();
        expect(await scene.fromAdmin(60_000)).toEqual(["db group", "db name"]);
        expect(readFileSync(scene.heardBy("thief"), "utf8")).toBe("");
      }, 400_000);
    },
    ["sid", "1.12"],
  );
});
