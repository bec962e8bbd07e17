// Import and export: a running, hand-made Nebula network becomes managed, and an exported organization continues with
// nebula-cert and nebula alone.

import { expect, test } from "bun:test";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { Node } from "../../src/protocol/node.ts";
import { paths } from "../support/paths.ts";
import { stringifyYaml } from "../../src/base/yaml.ts";
import { agentJson, buildAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { runSync } from "../support/debian.ts";
import { asRoot, describeEngines, type Engine } from "../support/engines.ts";
import { lost, makeLan, startPing, type Host } from "../support/namespaces.ts";
import { makeOrganization, makeOwner, owner, registerNode, signIn, startEngine } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

/** A hand-made network: a CA, hosts, and one configuration for each. */
function handMade(
  directory: string,
  { nebulaCert }: Engine,
  hosts: Record<string, { host: Host; ip: string }>,
) {
  mkdirSync(directory);
  const run = (...args: string[]) => runSync([nebulaCert, ...args], { cwd: directory });
  run("ca", "-name", "By hand", "-duration", "8760h");
  const [lighthouse] = Object.values(hosts);
  for (const [name, { host, ip }] of Object.entries(hosts)) {
    const groups = ["-groups", "hand,servers"];
    run(
      "sign",
      "-name",
      name,
      "-ip",
      `${ip}/16`,
      ...groups,
      "-out-crt",
      `${name}.crt`,
      "-out-key",
      `${name}.key`,
    );
    const isFirst = host === lighthouse?.host;
    const rules = [{ port: "any", proto: "any", host: "any" }];
    const config = {
      pki: {
        ca: join(directory, "ca.crt"),
        cert: join(directory, `${name}.crt`),
        key: join(directory, `${name}.key`),
      },
      static_host_map:
        lighthouse === undefined ? {} : { [lighthouse.ip]: [`${lighthouse.host.address}:4242`] },
      lighthouse: { am_lighthouse: isFirst, interval: 5, hosts: isFirst ? [] : [lighthouse?.ip ?? ""] },
      listen: { host: "0.0.0.0", port: isFirst ? 4242 : 0 },
      punchy: { punch: true },
      tun: { dev: "hand" },
      firewall: { outbound: rules, inbound: rules },
      logging: { level: "info", format: "json" },
    };
    mkdirSync(join(directory, name));
    writeFileSync(join(directory, name, "config.yml"), stringifyYaml(config));
  }
}

async function admin(plane: ControlPlane, words: readonly string[], input?: string): Promise<string> {
  const { status, stdout, stderr } = await plane.admin(words, input);
  if (status !== 0) throw new Error(`agent admin ${words.join(" ")}: exit ${status}\n${stdout}${stderr}`);
  return stdout;
}

asRoot("plain files", () => {
  describeEngines("a hand-made network", (engine) => {
    test("keeps running during the import, and its machines become managed one by one", async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["hub", "one", "two", "new"]);
      const by = join(directory.path, "hand");
      handMade(by, engine, {
        hub: { host: lan.host("hub"), ip: "10.42.0.1" },
        one: { host: lan.host("one"), ip: "10.42.0.2" },
        two: { host: lan.host("two"), ip: "10.42.7.3" },
      });
      using hub = await startEngine(lan.host("hub"), engine.nebula, join(by, "hub"));
      using one = await startEngine(lan.host("one"), engine.nebula, join(by, "one"));
      using two = await startEngine(lan.host("two"), engine.nebula, join(by, "two"));
      const ping = startPing(lan.host("one"), "10.42.7.3");
      const other = startPing(lan.host("one"), "10.42.0.1");
      await Promise.all([ping.reply(20_000), other.reply(20_000)]);

      await using plane = await startControlPlane(join(directory.path, "server"));
      await makeOwner(plane);
      const printed: unknown = JSON.parse(
        await admin(plane, ["import", "acme", by, "--owner", owner.email, "--json"]),
      );
      expect(printed).toMatchObject({
        network: "10.42.0.0/16",
        certificate_version: engine.version.startsWith("1.6") ? 1 : 2,
        nodes: [
          { name: "hub", ip_address: "10.42.0.1", is_lighthouse: true },
          { name: "one", ip_address: "10.42.0.2", is_lighthouse: false },
          { name: "two", ip_address: "10.42.7.3", is_lighthouse: false },
        ],
      });
      const acme = await signIn(plane, "acme");
      const nodes = v.parse(v.array(Node), await (await acme.api("GET", paths.nodes("acme"))).json());
      expect(nodes[0]).toMatchObject({ public_ip: lan.host("hub").address, external_port: 4242 });
      expect(nodes[0]?.groups).toEqual(["hand", "servers"]);

      // A new machine finds the others through the lighthouse, which is still unmanaged.
      const flags = ["--overlay-binary", engine.nebula];
      const fresh = await registerNode(
        acme,
        join(directory.path, "new"),
        "new",
        await acme.makeToken(),
        flags,
      );
      expect(fresh.ip_address).toBe("10.42.0.3");
      using joined = await startEngine(lan.host("new"), engine.nebula, fresh.directory);
      const across = startPing(lan.host("new"), "10.42.0.2");
      const back = startPing(lan.host("two"), fresh.ip_address);
      await Promise.all([across.reply(20_000), back.reply(20_000)]);
      await Promise.all([ping.stop(), back.stop()]);

      // A machine of the old network registers with its old name and address, and new keys.
      const bound = await acme.makeToken(["--node", "two"]);
      const managed = await registerNode(acme, join(directory.path, "two"), "two", bound, flags);
      expect(managed).toMatchObject({ node_id: nodes[2]?.id, ip_address: "10.42.7.3" });
      await two.stop();
      using again = await startEngine(lan.host("two"), engine.nebula, managed.directory);
      const after = startPing(lan.host("one"), "10.42.7.3");
      const between = startPing(lan.host("new"), "10.42.7.3");
      await Promise.all([after.reply(20_000), between.reply(20_000)]);
      await Promise.all([other, across, after, between].map((each) => each.stop()));
      // The other machines lost no packet.
      expect([lost(ping), lost(other), lost(across)]).toEqual([[], [], []]);
      expect([hub, one, joined, again].map((each) => each.log()).join()).not.toContain("panic");

      // A deleted machine is not told, but all managed machines refuse it.
      expect((await acme.api("DELETE", paths.node("acme", nodes[1]?.id ?? 0))).status).toBe(204);
      const at = (name: string) => ["--config-root", join(directory.path, name), ...flags];
      await agentJson(["sync-config", ...at("new")]);
      const blocklist = readFileSync(join(fresh.directory, "config.yml"), "utf8");
      expect(blocklist).toContain(nodes[1]?.certificate?.fingerprint ?? "no fingerprint");
    }, 120_000);
  });

  describeEngines("an exported organization", (engine) => {
    test("continues with nebula-cert and nebula alone", async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["hub", "one", "two"]);
      const isModern = Bun.semver.order(engine.version, "1.7.0") >= 0;
      const flags = ["--overlay-binary", engine.nebula];
      const out = join(directory.path, "out");
      const registered = [];
      {
        await using plane = await startControlPlane(join(directory.path, "server"));
        const acme = await makeOrganization(plane);
        const token = await acme.makeToken(["--uses", "2", "--lighthouse"]);
        const hubFlags = [...flags, "--is-lighthouse", "--public-ip", lan.host("hub").address];
        registered.push(await registerNode(acme, join(directory.path, "hub"), "hub", token, hubFlags));
        registered.push(await registerNode(acme, join(directory.path, "one"), "one", token, flags));
        // 1.6 does not support encrypted keys.
        const how = isModern ? ["--passphrase-file", "-"] : ["--plain"];
        await admin(plane, ["export", "acme", out, ...how], isModern ? "a long passphrase" : "");
        const twice = await plane.admin(["export", "acme", out, "--plain"]);
        expect(twice.status).toBe(1);
        expect(twice.stderr).toContain("is not empty");
      }
      expect((statSync(join(out, "ca.key")).mode & 0o777).toString(8)).toBe("600");
      expect(readFileSync(join(out, "ca.key"), "utf8")).toContain(
        isModern ? "ENCRYPTED PRIVATE KEY" : "ED25519",
      );
      const pass = isModern ? ["-passin", "pass:a long passphrase"] : [];
      runSync(["openssl", "pkey", "-in", join(out, "x509-ca.key"), "-noout", ...pass]);

      // A third machine, set up as in the engine's manual.
      const env = { ...process.env, NEBULA_CA_PASSPHRASE: "a long passphrase" };
      const signed = Bun.spawnSync(
        [
          engine.nebulaCert,
          "sign",
          "-ca-crt",
          join(out, "ca.crt"),
          "-ca-key",
          join(out, "ca.key"),
          "-name",
          "two",
          "-ip",
          "10.77.0.9/16",
        ],
        { cwd: directory.path, env },
      );
      expect(signed.stderr.toString() + signed.stdout.toString()).toBe("");
      const places = new Map<string, string>();
      for (const [at, name] of ["hub", "one"].entries()) {
        const place = join(directory.path, `plain-${name}`, "acme");
        mkdirSync(place, { recursive: true });
        for (const file of readdirSync(join(out, "nodes", name)))
          copyFileSync(join(out, "nodes", name, file), join(place, file));
        copyFileSync(join(registered[at]?.directory ?? "", "host.key"), join(place, "host.key"));
        // The directory must work in any place.
        const verify = [
          engine.nebulaCert,
          "verify",
          "-ca",
          join(out, "ca.crt"),
          "-crt",
          join(place, "host.crt"),
        ];
        expect(runSync(verify)).toBe("");
        places.set(name, place);
      }
      const third = join(directory.path, "plain-two", "acme");
      mkdirSync(third, { recursive: true });
      for (const [from, to] of [
        [join(directory.path, "two.crt"), "host.crt"],
        [join(directory.path, "two.key"), "host.key"],
        [join(out, "ca.crt"), "ca.crt"],
        [join(out, "nodes/one/config.yml"), "config.yml"],
      ] as const) {
        copyFileSync(from, join(third, to));
      }
      using hub = await startEngine(lan.host("hub"), engine.nebula, places.get("hub") ?? "");
      using one = await startEngine(lan.host("one"), engine.nebula, places.get("one") ?? "");
      using two = await startEngine(lan.host("two"), engine.nebula, third);
      const pings = ["10.77.0.1", "10.77.0.2"].map((ip) => startPing(lan.host("two"), ip));
      await Promise.all(pings.map((ping) => ping.reply(20_000)));
      await Promise.all(pings.map((ping) => ping.stop()));
      expect([hub, one, two].map((each) => each.log()).join()).not.toContain("panic");
    }, 90_000);
  });
});
