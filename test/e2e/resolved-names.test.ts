// Names by a real systemd-resolved, on a Debian that systemd has booted: told, told again after restarts of everything that
// takes part, and taken back. The machine's own name server answers all the time.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { paths } from "../support/paths.ts";
import { debianTree } from "../support/debian-tree.ts";
import { makeSite, type MachineNode, type Site } from "../support/machine-node.ts";
import { startNameServer } from "../support/name-server.ts";
import { describeMachine, machinePackages } from "../support/nspawn.ts";
import { inFull, instants } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const unit = "overlay-agent-names";
const lighthouse = "lighthouse.acme.internal";
const found = `getent ahostsv4 ${lighthouse} | grep -q '^10.77.0.1 '`;
/** Over systemd-resolved's cache: an answer must come from the name server. */
const upstream = "resolvectl query --cache=no upstream.example";
const settings = "resolvectl status ov-acme";

describeMachine("names under systemd-resolved", () => {
  let site: Site;
  let node: MachineNode;
  const directory = temporaryDirectory();
  const must = (line: string) => node.machine.must(line, inFull ? 900_000 : 120_000);
  const finds = () => node.machine.until(found, 15_000);
  const isServed = () => node.machine.until(`${settings} | grep -q 127.0.0.9:5399 && ${found}`, 15_000);
  /** Runs the script while another name is looked up without a pause; what the failures said. */
  const failuresDuring = (script: string) =>
    must(`
      rm -f /tmp/over
      (while [ ! -e /tmp/over ]; do said=$(${upstream} 2>&1) || echo "$(date +%T.%3N) $said"; done) >/tmp/failures &
      ${script}
      touch /tmp/over; wait; cat /tmp/failures`);

  beforeAll(async () => {
    const names = join(directory.path, "names.json");
    writeFileSync(
      names,
      JSON.stringify({ "upstream.example": "192.0.2.77", "office.corp.example": "192.0.2.78" }),
    );
    const base = debianTree("resolved", [...machinePackages, "systemd-resolved", "libnss-resolve"]);
    site = await makeSite(["vm", "dns"], {
      base,
      async prepare(root) {
        mkdirSync(join(root, "etc/systemd/resolved.conf.d"), { recursive: true });
        writeFileSync(join(root, "etc/hosts"), "127.0.0.1 localhost\n");
      },
    });
    await startNameServer(site.host("dns"), names);
    node = await site.boot("vm");
    const own = `[Resolve]\\nDNS=${site.host("dns").address}\\nLLMNR=no\\n`;
    await must(
      `printf '${own}' >/etc/systemd/resolved.conf.d/test.conf && systemctl restart systemd-resolved`,
    );
    await must(upstream);
    await node.register("server");
    await must("test -e /etc/overlay-agent/acme/hosts.json || agent check-auth --all");
  }, 300_000);
  afterAll(async () => {
    await node[Symbol.asyncDispose]();
    await site[Symbol.asyncDispose]();
    directory[Symbol.dispose]();
  });

  test("are asked for on the overlay's interface alone, and nothing is on disk", async () => {
    const before = await must("sha256sum /etc/hosts /etc/resolv.conf /run/systemd/resolve/resolv.conf");
    expect(await must("agent names --on")).toContain("systemd-resolved");
    await isServed();
    const shown = await must(settings);
    expect(shown).toContain("-DefaultRoute -LLMNR -mDNS -DNSOverTLS DNSSEC=no");
    expect(shown).toContain("DNS Domain: ~acme.internal ~77.10.in-addr.arpa");
    expect(await must("getent hosts 10.77.0.1")).toContain(lighthouse);
    expect(await must("resolvectl query --type=AAAA nothing.acme.internal 2>&1 || true")).toContain(
      "not found",
    );
    expect(await must("resolvectl query upstream.example")).toContain("192.0.2.77");
    expect(await must("sha256sum /etc/hosts /etc/resolv.conf /run/systemd/resolve/resolv.conf")).toBe(before);
    expect(await must(`systemd-analyze verify ${unit}.service 2>&1`)).toBe("");
    await must(`systemd-analyze security --threshold=25 ${unit}.service`);
    expect(await must("agent names lighthouse")).toContain("systemd-resolved, which asks the resolver");
    expect(await must("agent status")).toContain("Programs find names by systemd-resolved");
    expect(await must("agent doctor | grep ' names '")).toContain(
      `${lighthouse} is found through systemd-resolved`,
    );
  }, 240_000);

  test("end in another domain only while root allows it; its other names are then not asked for outside", async () => {
    const second = "getent ahostsv4 lighthouse.corp.example | grep -q '^10.77.0.1 '";
    await site.plane.api("PATCH", paths.organization("acme"), { name_suffix: "corp.example" });
    // What the timer does within a minute.
    await must("agent check-auth --all");
    await node.machine.until("agent status | grep 'do not end in .corp.example'", 15_000);
    expect(await must(`${second} || resolvectl query --cache=no office.corp.example`)).toContain(
      "192.0.2.78",
    );
    expect(await must("agent names allow co.uk 2>&1 || echo exit $?")).toContain("exit 1");
    await must("agent names allow corp.example");
    await node.machine.until(`${second} && agent status | grep 'also end in .corp.example'`, 15_000);
    expect(await must(settings)).toContain("DNS Domain: ~acme.internal ~77.10.in-addr.arpa ~corp.example");
    expect(await must("resolvectl query --cache=no office.corp.example 2>&1 || true")).toContain("not found");
    expect(await must("resolvectl query upstream.example")).toContain("192.0.2.77");
    await must("agent names disallow corp.example");
    await node.machine.until(`! ${second} && ${found}`, 15_000);
    expect(await must(settings)).not.toContain("corp.example");
    expect(await must("resolvectl query --cache=no office.corp.example")).toContain("192.0.2.78");
    // The rest of the tests is with it: it goes with everything else.
    await must("agent names allow corp.example");
    await node.machine.until(second, 15_000);
  }, 180_000);

  test("are found by their short form where that is asked for, and only then", async () => {
    const short = "getent ahostsv4 lighthouse | grep -q '^10.77.0.1 '";
    expect(await must(`${short} || echo nothing`)).toBe("nothing");
    await must("agent names --on --search");
    await node.machine.until(short, 15_000);
    expect(await must(settings)).toMatch(/DNS Domain: acme.internal .*~77.10.in-addr.arpa/);
    expect(await must("resolvectl query upstream.example")).toContain("192.0.2.77");
    await must("agent install-systemd");
    await node.machine.until(short, 15_000);
    await must("agent names --on");
    await node.machine.until(`! ${short} && ${found}`, 15_000);
  }, 60_000);

  test("are answered to peers once root allows it, by the unit alone, until the role ends", async () => {
    const id = Number(
      await must("grep -oP '\"node_id\": *\\K[0-9]+' /etc/overlay-agent/acme/node-config.json"),
    );
    const setRole = (is_name_server: boolean) =>
      site.plane.api("PATCH", paths.node("acme", id), { is_name_server });
    await setRole(true);
    await must("agent check-auth --all");
    await node.machine.until("agent status | grep 'root has not allowed it'", 15_000);
    expect(await must("agent doctor | grep -A1 ' names '")).toContain("agent names --on --peers");
    expect(await must("ss -Hlnut 'sport = :53' | grep -v 127.0.0 || true")).toBe("");
    // The query for lighthouse.acme.internal, and the address in its answer.
    const query = String.raw`\0\7\0\0\0\1\0\0\0\0\0\0\12lighthouse\4acme\10internal\0\0\1\0\1`;
    const own = "$(ip -o -4 addr show ov-acme | grep -oP 'inet \\K[0-9.]+')";
    // One write is one packet.
    const asks = `printf '${query}' >/tmp/query; exec 3<>/dev/udp/${own}/53; cat /tmp/query >&3
      timeout 5 head -c 82 <&3 | od -An -tx1 | tr -d ' \\n'`;
    await must(
      `systemd-run --unit=squatter systemd-socket-activate --listen=${own}:53 /bin/cat; agent names --on --peers`,
    );
    await node.machine.until("agent status | grep 'another program uses this port'", 15_000);
    expect(await must("agent doctor | grep -A1 ' names '")).toContain("ss -lntp 'sport = :53'");
    await must("systemctl stop squatter");
    await node.machine.until("agent status | grep 'Nodes of acme are answered at'", 25_000);
    expect(await must(`bash <<'END'\n${asks}\nEND`)).toContain("0a4d0001");
    await isServed();
    expect(await must(`systemctl show -P IPAddressAllow ${unit}`)).toContain("10.77.0.0/16");
    await must(`systemd-analyze security --threshold=25 ${unit}.service`);
    // A renewal of the units keeps the permission.
    await must("agent install-systemd");
    await node.machine.until("agent status | grep 'Nodes of acme are answered at'", 15_000);
    await setRole(false);
    await must("agent check-auth --all");
    await node.machine.until(
      "! agent status | grep -q 'Nodes of acme' && ! ss -Hlnut 'sport = :53' | grep -v 127.0.0",
      15_000,
    );
    await must("agent names --on");
    await isServed();
  }, 180_000);

  test(
    "come back after restarts of the engine and of systemd-resolved, and after another program's change",
    async () => {
      const times: Record<string, number[]> = { "overlay-agent@acme": [], "systemd-resolved": [] };
      for (const [each, found] of Object.entries(times)) {
        for (let round = 0; round < (inFull ? 100 : 3); round++) {
          await must(`systemctl reset-failed ${each} 2>/dev/null; systemctl restart ${each}`);
          found.push(Math.round(await isServed()));
        }
      }
      if (inFull) process.stdout.write(`names are back after (ms): ${JSON.stringify(times)}\n`);
      // Without what systemd-resolved keeps for its restarts.
      await must(
        "systemctl stop systemd-resolved; rm -rf /run/systemd/resolve/netif; systemctl start systemd-resolved",
      );
      await isServed();
      await must("resolvectl revert ov-acme");
      await isServed();
      await must("resolvectl dns ov-acme 192.0.2.99");
      await isServed();
    },
    inFull ? 900_000 : 90_000,
  );

  test(
    "never cost another name, while service and engine are killed and settings change",
    async () => {
      const failures = await failuresDuring(`
      i=0
      for pause in ${instants(200, 1500)
        .map((ms) => (ms / 1000).toFixed(3))
        .join(" ")}; do
        i=$((i + 1))
        systemctl kill --signal=SIGKILL ${unit} 2>/dev/null || true
        [ $((i % 3)) != 0 ] || systemctl kill --signal=SIGKILL overlay-agent@acme 2>/dev/null || true
        [ $((i % 4)) != 0 ] || resolvectl revert ov-acme 2>/dev/null || true
        sleep $pause
      done`);
      expect(failures).toBe("");
      await node.machine.until("ip link show ov-acme", 15_000);
      await isServed();
    },
    inFull ? 900_000 : 90_000,
  );

  test("are in /etc/hosts while programs do not ask systemd-resolved, or another program has the port", async () => {
    const dns = site.host("dns").address;
    await must(`
      sed -i.before 's/resolve \\[!UNAVAIL=return\\]//' /etc/nsswitch.conf
      rm /etc/resolv.conf && echo 'nameserver ${dns}' >/etc/resolv.conf`);
    await node.machine.until(`grep -q ${lighthouse} /etc/hosts && ${found}`, 10_000);
    expect(await must(settings)).not.toContain("127.0.0.9");
    expect(await must("getent hosts upstream.example")).toContain("192.0.2.77");
    await must(`mv /etc/nsswitch.conf.before /etc/nsswitch.conf
      ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf`);
    await node.machine.until("! grep -q overlay-agent /etc/hosts", 10_000);
    await isServed();
    await must(`
      systemctl stop ${unit}
      systemd-run --unit=squatter systemd-socket-activate --listen=127.0.0.9:5399 /bin/cat
      sleep 0.5; systemctl start ${unit}`);
    await node.machine.until(`grep -q ${lighthouse} /etc/hosts && ${found}`, 10_000);
    expect(await must(settings)).not.toContain("127.0.0.9");
    expect(await must("agent doctor | grep -A1 ' names '")).toContain("another program uses this port");
    await must("systemctl stop squatter");
    await node.machine.until("! grep -q overlay-agent /etc/hosts", 20_000);
    await isServed();
  }, 240_000);

  test("of 12,000 nodes are prepared by the unit, and kept for its next start", async () => {
    const hosts = "/etc/overlay-agent/acme/hosts.json";
    await must(String.raw`cp -p ${hosts} /root/before.json
      awk 'BEGIN { for (i = 0; i < 12000; i++)
        printf "{\"id\":%d,\"name\":\"many-%d\",\"ip\":\"10.77.%d.%d\"},", 100000 + i, i, 100 + i / 250, 1 + i % 250 }' >/root/many
      awk '{ getline many < "/root/many"; sub(/"nodes":\[/, "&" many); print }' ${hosts} >/root/hosts.json
      chmod 644 /root/hosts.json && mv /root/hosts.json ${hosts}`);
    const many = "getent ahostsv4 many-11999.acme.internal | grep -q '^10.77.147.250 '";
    await node.machine.until(many, 30_000);
    const prepared = `stat --format='%a %i' /var/cache/${unit}/names.packed`;
    const before = await must(prepared);
    expect(before).toStartWith("600 ");
    await must(`systemctl restart ${unit}`);
    await node.machine.until(`${many} && ${found}`, 15_000);
    expect(await must(prepared)).toBe(before);
    await must(`mv /root/before.json ${hosts}`);
    await node.machine.until(`! ${many} && ${found}`, 15_000);
  }, 90_000);

  test("answer again after the line that doctor prints where their resolver hangs", async () => {
    const namesOf = async () => {
      const { checks } = JSON.parse((await node.machine.run("agent doctor --json")).stdout) as {
        checks: { id: string; verdict: string; evidence: string; remedy?: string }[];
      };
      return checks.find(({ id }) => id === "names");
    };
    await isServed();
    await must(`systemctl kill --signal=STOP ${unit}`);
    const found = await namesOf();
    expect(found).toMatchObject({
      verdict: "fail",
      evidence: expect.stringContaining("does not answer"),
      remedy: `systemctl restart ${unit}`,
    });
    await must(found?.remedy ?? "false");
    await isServed();
    await finds();
    expect(await namesOf()).toMatchObject({ verdict: "ok" });
  }, 90_000);

  test("answer after a power cut, without control plane and lighthouse", async () => {
    for (const host of [site.host("plane"), site.peer]) host.run(["ip", "link", "set", "eth0", "down"]);
    await node.machine.cutPower();
    await node.machine.boot();
    await isServed();
    await must(upstream);
    for (const host of [site.host("plane"), site.peer]) host.run(["ip", "link", "set", "eth0", "up"]);
  }, 240_000);

  test("are gone after a stop, after --off, and after an uninstall; other names stay", async () => {
    const gone = () => node.machine.until(`! ${settings} | grep -q 127.0.0.9`, 10_000);
    const failures = await failuresDuring(
      `systemctl stop ${unit}; sleep 0.3; systemctl start ${unit}; sleep 1`,
    );
    expect(failures).toBe("");
    await isServed();
    await must(`systemctl stop ${unit}`);
    await gone();
    await must(`systemctl start ${unit}`);
    await finds();
    await must("agent names --off");
    await gone();
    expect(
      await must(
        `ls -d /run/${unit} /var/cache/${unit} /etc/systemd/system/${unit}.service 2>/dev/null || true`,
      ),
    ).toBe("");
    await must("agent names --on");
    await isServed();
    await must("agent install-systemd --uninstall");
    await node.machine.until(`! grep -q 127.0.0.9 /run/systemd/resolve/netif/* 2>/dev/null`, 10_000);
    await must(upstream);
    expect(await must("cat /etc/hosts")).toBe("127.0.0.1 localhost");
  }, 240_000);
});
