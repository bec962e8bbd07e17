// `bun test/bench/offload-kernels.ts [SUITE…]`: offloads of engine 1.12 on the kernels of other Debian releases (default:
// bullseye and bookworm), in an emulated machine: a file with its hash through a tunnel, over Ethernet and over a VLAN,
// without offloads, with those of the interface alone, and with both. Needs root and QEMU; minutes, without KVM.

import { copyFileSync, cpSync, existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { stringifyYaml } from "../../src/base/yaml.ts";
import { installMissing, runSync } from "../support/debian.ts";
import { engineNamed } from "../support/engines.ts";
import { cacheDirectory } from "../support/cache.ts";
import { busybox, unpackPackage } from "../support/packages.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const missing = installMissing(["/usr/bin/qemu-system-x86_64"]);
if (missing !== undefined) throw new Error(missing);
const engine = engineNamed("1.12");

/** Kernel modules in the order of loading; one that is built in has no file. */
const modules = ["tun", "veth", "llc", "stp", "garp", "mrp", "8021q", "crc32c_generic"];

/** In the machine: two namespaces, an engine in each, and what the host's console reads. */
const init = (cases: readonly string[]) => `#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mkdir -p /run/netns /tmp
mknod /dev/net/tun c 10 200 2>/dev/null
for each in ${modules.join(" ")}; do [ -f /modules/$each.ko ] && insmod /modules/$each.ko; done
/real/ip link set lo up
echo "KERNEL $(uname -r)"
head -c 33554432 /dev/urandom > /tmp/file
# An end of its input would end the transfer.
mkfifo /tmp/hold; exec 9<>/tmp/hold
unshare -n sleep 9999 & A=$!
unshare -n sleep 9999 & B=$!
sleep 1
in_a() { nsenter -t $A -n "$@"; }
in_b() { nsenter -t $B -n "$@"; }
/real/ip link add va type veth peer name vb
/real/ip link set va netns $A; /real/ip link set vb netns $B
in_a /real/ip link set va up; in_b /real/ip link set vb up; in_a /real/ip addr add 192.0.2.1/24 dev va; in_b /real/ip addr add 192.0.2.2/24 dev vb
in_a /real/ip link add link va name va.7 type vlan id 7; in_b /real/ip link add link vb name vb.7 type vlan id 7
in_a /real/ip link set va.7 up; in_b /real/ip link set vb.7 up
in_a /real/ip addr add 198.51.100.1/24 dev va.7; in_b /real/ip addr add 198.51.100.2/24 dev vb.7
for each in ${cases.join(" ")}; do
  in_a /bin/nebula -config /node/$each/a.yml > /tmp/a.log 2>&1 &
  in_b /bin/nebula -config /node/$each/b.yml > /tmp/b.log 2>&1 &
  sleep 4
  in_b ping -c 2 -W 4 10.78.0.1 > /dev/null
  rm -f /tmp/got
  in_a sh -c 'exec nc -l -p 9000 < /tmp/file' &
  sleep 1
  START=$(cut -d' ' -f1 /proc/uptime)
  in_b timeout 60 nc 10.78.0.1 9000 > /tmp/got <&9
  END=$(cut -d' ' -f1 /proc/uptime)
  cmp -s /tmp/file /tmp/got && R=whole || R=DAMAGED
  WRONG=$(in_b cat /proc/net/snmp | awk '/^Tcp:/{t=$0} END{split(t,x," "); print x[16]}')
  echo "CASE $each $R $START $END wrong=$WRONG $(grep -ho 'GSO [a-z]*\\|GRO [a-z]*\\|"tso":[a-z]*\\|"uso":[a-z]*\\|rejected GSO[^"]*' /tmp/b.log | tr '\\n' ' ')"
  killall nebula nc; sleep 1
done
echo DONE
poweroff -f
`;

const switches = { none: [false, false], interface: [true, false], both: [true, true] } as const;
const underlays = { ethernet: "192.0.2.1", vlan: "198.51.100.1" } as const;

/** The configurations of each case, below `root`. */
function writeNodes(root: string): string[] {
  const at = (file: string) => join(root, "node", file);
  mkdirSync(at(""), { recursive: true });
  runSync([
    engine.nebulaCert,
    "ca",
    "-version",
    "1",
    "-name",
    "t",
    "-out-crt",
    at("ca.crt"),
    "-out-key",
    at("ca.key"),
  ]);
  for (const [name, ip] of [
    ["a", "10.78.0.1/24"],
    ["b", "10.78.0.2/24"],
  ] as const)
    runSync([
      engine.nebulaCert,
      "sign",
      "-name",
      name,
      "-networks",
      ip,
      "-ca-crt",
      at("ca.crt"),
      "-ca-key",
      at("ca.key"),
      "-out-crt",
      at(`${name}.crt`),
      "-out-key",
      at(`${name}.key`),
    ]);
  const any = [{ port: "any", proto: "any", host: "any" }];
  return Object.entries(underlays).flatMap(([underlay, address]) =>
    Object.entries(switches).map(([ends, [tun, udp]]) => {
      const name = `${underlay}-${ends}`;
      mkdirSync(at(name));
      for (const [node, isHub] of [
        ["a", true],
        ["b", false],
      ] as const)
        writeFileSync(
          at(`${name}/${node}.yml`),
          stringifyYaml({
            pki: { ca: "/node/ca.crt", cert: `/node/${node}.crt`, key: `/node/${node}.key` },
            static_host_map: { "10.78.0.1": [`${address}:4242`] },
            lighthouse: { am_lighthouse: isHub, hosts: isHub ? [] : ["10.78.0.1"] },
            listen: {
              host: "0.0.0.0",
              port: 4242,
              udp_offloads: udp,
              read_buffer: 4_194_304,
              write_buffer: 4_194_304,
            },
            tun: { dev: `neb${node}`, mtu: 1300, use_offloads: tun },
            local_api: { control: { enabled: false } },
            logging: { level: "info", format: "json" },
            firewall: { inbound: any, outbound: any },
          }),
        );
      return name;
    }),
  );
}

/** The kernel and its modules, from the package that the release's metapackage names. */
function kernelOf(suite: string): { image: string; modules: string } {
  const place = (name: string) => join(cacheDirectory, "kernels", suite, name);
  const meta = "linux-image-cloud-amd64";
  const tree = place("kernel");
  if (!existsSync(tree)) {
    const depends = runSync([
      "sh",
      "-c",
      `apt-cache show ${meta} | sed -n 's/^Depends: \\(linux-image[^ ,]*\\).*/\\1/p' | head -1`,
    ]).trim();
    unpackPackage(suite === "bookworm" ? depends : (known[suite] ?? depends), tree, { suite });
  }
  const image = readdirSync(join(tree, "boot")).find((name) => name.startsWith("vmlinuz"));
  if (image === undefined) throw new Error(`No kernel in ${tree}`);
  const release = image.replace("vmlinuz-", "");
  return { image: join(tree, "boot", image), modules: join(tree, "lib/modules", release) };
}
const known: Readonly<Record<string, string>> = { bullseye: "linux-image-5.10.0-32-cloud-amd64" };

async function boot(suite: string): Promise<void> {
  using directory = temporaryDirectory();
  const root = join(directory.path, "root");
  for (const each of ["bin", "proc", "sys", "dev", "modules", "real"])
    mkdirSync(join(root, each), { recursive: true });
  copyFileSync(busybox("busybox-static"), join(root, "bin/busybox"));
  copyFileSync(engine.nebula, join(root, "bin/nebula"));
  // That of busybox makes no pairs of interfaces, and its shell prefers its own.
  const program = "/usr/sbin/ip";
  for (const [library] of runSync(["ldd", program]).matchAll(/\/\S+/g)) {
    mkdirSync(join(root, dirname(library)), { recursive: true });
    copyFileSync(library, join(root, library));
  }
  copyFileSync(program, join(root, "real/ip"));
  const kernel = kernelOf(suite);
  const files = runSync(["find", kernel.modules, "-name", "*.ko"]).trim().split("\n");
  for (const path of files)
    if (modules.includes(basename(path, ".ko"))) cpSync(path, join(root, "modules", basename(path)));
  writeFileSync(join(root, "init"), init(writeNodes(root)), { mode: 0o755 });
  const archive = join(directory.path, "initramfs");
  runSync(["sh", "-c", `cd ${root} && find . | busybox cpio -o -H newc 2>/dev/null > ${archive}`]);
  const machine = Bun.spawn(
    [
      "timeout",
      "900",
      "qemu-system-x86_64",
      "-accel",
      "tcg",
      "-cpu",
      "max",
      "-smp",
      "2",
      "-m",
      "512",
      "-nographic",
      "-no-reboot",
      "-kernel",
      kernel.image,
      "-initrd",
      archive,
      "-append",
      "console=ttyS0 quiet panic=-1",
    ],
    { stdin: "ignore", stdout: "pipe", stderr: "ignore" },
  );
  const text = await new Response(machine.stdout).text();
  const lines = text.split("\n").filter((line) => /^(KERNEL|CASE)/.test(line));
  process.stdout.write(`${suite}\n${lines.join("\n")}\n`);
  if (!text.includes("DONE") || text.includes("DAMAGED")) {
    process.stdout.write(text.slice(-3000));
    process.exitCode = 1;
  }
}

const suites = process.argv.slice(2);
for (const suite of suites.length === 0 ? ["bullseye", "bookworm"] : suites) await boot(suite);
