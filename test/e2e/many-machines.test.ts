// The examples of docs/machines.md for cloud-init and Ansible, tried with both on booted machines: one machine joins at its
// first boot, another one by a playbook.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { appendFileSync, copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { buildAgent, root } from "../support/agent.ts";
import { installMissing, runSync } from "../support/debian.ts";
import { debianTree } from "../support/debian-tree.ts";
import { makeLan, type Lan } from "../support/namespaces.ts";
import { describeMachine, machinePackages, makeMachine, type Machine } from "../support/nspawn.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const names = ["control", "cloud", "ansible"] as const;
const Setup = v.pipe(v.string(), v.parseJson(), v.object({ join_keys: v.tuple([v.string()]) }));
const document = readFileSync(join(root, "docs/machines.md"), "utf8");
const [cloudConfig = "", playbook = ""] = ["#cloud-config", "- hosts: new"].map(
  (begin) =>
    document
      .split("```yaml\n")
      .find((block) => block.startsWith(begin))
      ?.split("```\n")[0],
);

describeMachine("many machines", () => {
  const directory = temporaryDirectory();
  const at = (path: string) => join(directory.path, path);
  const machines: Machine[] = [];
  let lan: Lan;
  const on = (name: (typeof names)[number]): Machine => {
    const machine = machines[names.indexOf(name)];
    if (machine === undefined) throw new Error(`There is no machine ${name}`);
    return machine;
  };
  const put = (name: (typeof names)[number], path: string, text: string, mode = 0o644) => {
    const place = join(on(name).root, path);
    mkdirSync(dirname(place), { recursive: true });
    writeFileSync(place, text, { mode });
  };

  beforeAll(async () => {
    const missing = installMissing(["/usr/bin/ansible-playbook", "/usr/bin/ssh", "/usr/bin/ssh-keygen"]);
    if (missing !== undefined) throw new Error(missing);
    const tree = debianTree("cloud", [
      ...machinePackages,
      "cloud-init",
      "openssh-server",
      "python3",
      "python3-cffi-backend",
    ]);
    runSync(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at("id")]);
    mkdirSync(at("layer/usr/local/bin"), { recursive: true });
    copyFileSync(buildAgent(), at("layer/usr/local/bin/agent"));
    mkdirSync(at("layer/root/.ssh"), { recursive: true, mode: 0o700 });
    copyFileSync(at("id.pub"), at("layer/root/.ssh/authorized_keys"));
    lan = makeLan([...names, "client"]);
    for (const name of names) {
      machines.push(makeMachine(lan.host(name).namespace, at("layer"), tree));
      appendFileSync(
        join(on(name).root, "etc/hosts"),
        `${lan.host("control").address} control.example.org\n`,
      );
      if (name === "cloud") continue;
      put(name, "etc/cloud/cloud-init.disabled", "");
      put(name, "etc/hostname", `${name}\n`);
    }
    await on("control").boot();
  }, 600_000);
  afterAll(async () => {
    for (const machine of machines) await machine[Symbol.asyncDispose]();
    lan?.[Symbol.dispose]();
    directory[Symbol.dispose]();
  });

  test("a machine joins at its first boot by cloud-init, and keeps no key", async () => {
    const line =
      "agent setup --yes --public-name control.example.org --email ada@example.org --org-slug acme";
    const said = await on("control").must(`${line} --machines 1 --json`, 120_000);
    const [key] = v.parse(Setup, said).join_keys;
    put("cloud", "var/lib/cloud/seed/nocloud/user-data", cloudConfig.replace("oaj1KEY", key), 0o600);
    put("cloud", "var/lib/cloud/seed/nocloud/meta-data", "instance-id: one\nlocal-hostname: cloud\n");
    const only =
      "datasource_list: [NoCloud]\nnetwork: {config: disabled}\nmanage_etc_hosts: false\nlocale: false\n";
    put("cloud", "etc/cloud/cloud.cfg.d/99-test.cfg", only);
    await on("cloud").boot();
    await on("cloud").until("ping -c 1 -W 1 10.77.0.1", 60_000);
    await on("cloud").until("! cloud-init status | grep -q running", 60_000);
    expect((await on("cloud").run("cloud-init status --long")).stdout).toContain("status: done");
    expect(await on("cloud").must("systemctl is-active overlay-agent@acme")).toBe("active");
    expect((await on("cloud").run("test -e /run/join-key")).status).toBe(1);
    expect(await on("cloud").must("cat /var/log/cloud-init*.log")).not.toContain(key.slice(4, 40));
  }, 240_000);

  test("a playbook makes a key on the control plane, and the machine joins; run again, it changes nothing", async () => {
    await on("ansible").boot();
    writeFileSync(at("play.yml"), playbook);
    const ssh = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR";
    const inventory = [
      `control.example.org ansible_host=${lan.host("control").address}`,
      "[new]",
      `web ansible_host=${lan.host("ansible").address}`,
      "[all:vars]",
      "ansible_user=root",
      "ansible_python_interpreter=/usr/bin/python3",
      `ansible_ssh_private_key_file=${at("id")}`,
      `ansible_ssh_common_args='${ssh}'`,
    ];
    writeFileSync(at("inventory"), `${inventory.join("\n")}\n`);
    const play = () =>
      runSync(lan.host("client").inside(["ansible-playbook", "-i", at("inventory"), at("play.yml")]));
    expect(play()).toMatch(/web +: ok=\d+ +changed=[12] +unreachable=0 +failed=0/);
    await on("ansible").must("ping -c 1 -W 1 10.77.0.1");
    expect(play()).toMatch(/web +: ok=\d+ +changed=0 +unreachable=0 +failed=0/);
    const nodes = await on("control").must("agent admin node list acme --json");
    expect(nodes.match(/"name":"(cloud|ansible)"/g)?.length).toBe(2);
  }, 240_000);
});
