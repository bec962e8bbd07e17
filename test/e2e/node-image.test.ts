// The image of a node, run as compose-node.yml says beside a service that shares its network: a read-only root, two
// capabilities, a join key in a file. Another node reaches the service through the overlay.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { makeImage, nodeImage } from "../../packaging/image.ts";
import { agent, buildAgent, root } from "../support/agent.ts";
import { cannotInstall, inCi, installMissing, runSync } from "../support/debian.ts";
import { makeSite, type Site } from "../support/machine-node.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const Bundle = v.object({
  process: v.object({
    args: v.array(v.string()),
    env: v.array(v.string()),
    user: v.object({ uid: v.literal(0) }),
  }),
});
const Compose = v.object({
  services: v.object({
    overlay: v.object({
      command: v.array(v.string()),
      volumes: v.array(v.string()),
      tmpfs: v.array(v.string()),
      devices: v.tuple([v.literal("/dev/net/tun")]),
      read_only: v.literal(true),
      cap_drop: v.tuple([v.literal("ALL")]),
      cap_add: v.array(v.string()),
      healthcheck: v.object({ test: v.array(v.string()) }),
    }),
    web: v.object({ network_mode: v.literal("service:overlay") }),
  }),
});

const reason =
  cannotInstall() ??
  installMissing(["/usr/bin/umoci", "/usr/bin/nebula", "/usr/bin/ping", "/usr/sbin/ip"]) ??
  (existsSync("/dev/net/tun") ? undefined : "there is no /dev/net/tun");
if (reason !== undefined && inCi) throw new Error(`node image: ${reason}`);

describe.skipIf(reason !== undefined)("the image of a node", () => {
  const work = temporaryDirectory();
  const at = (name: string) => join(work.path, name);
  const compose = v.parse(
    Compose,
    Bun.YAML.parse(readFileSync(join(root, "packaging/compose-node.yml"), "utf8")),
  );
  const { overlay } = compose.services;
  let site: Site;
  let told: v.InferOutput<typeof Bundle>["process"];

  beforeAll(async () => {
    buildAgent();
    site = await makeSite(["web"]);
    makeImage(at("image.tar"), nodeImage(agent, "/usr/bin/nebula"), {
      version: "0.2.0",
      timeS: 1_790_000_000,
    });
    mkdirSync(at("layout"));
    runSync(["tar", "-xf", at("image.tar"), "-C", at("layout")]);
    runSync(["umoci", "unpack", "--image", `${at("layout")}:0.2.0`, at("bundle")]);
    ({ process: told } = v.parse(Bundle, JSON.parse(readFileSync(at("bundle/config.json"), "utf8"))));
    for (const volume of overlay.volumes) mkdirSync(at(volume.split(":")[0] ?? ""));
    mkdirSync(at("secrets"));
    writeFileSync(at("secrets/join-key"), await site.plane.makeKey(["--expires", "1h"]), { mode: 0o600 });
  }, 300_000);
  afterAll(async () => {
    await site[Symbol.asyncDispose]();
    work[Symbol.dispose]();
  });

  /** Runs words in the image, as a runtime does: own mounts, a read-only root, the capabilities of the example. */
  const inImage = (words: readonly string[]): string[] => {
    const place = at("bundle/rootfs");
    const bind = (from: string, to: string) =>
      `mkdir -p ${place}${to} && mount --rbind ${from} ${place}${to}`;
    const mounts = [
      `mount --bind ${place} ${place}`,
      ...["/dev", "/proc"].map((path) => bind(path, path)),
      // The runtime makes the places of mounts; the name of the machine is the host name.
      `mkdir -p ${place}/run/secrets ${place}/sys`,
      `mount -o remount,ro,bind ${place}`,
      ...overlay.tmpfs.map((path) => `mount -t tmpfs -o mode=1777 tmpfs ${place}${path}`),
      `mount --bind ${at("secrets")} ${place}/run/secrets`,
      ...overlay.volumes.map((each) => {
        const [volume = "", path = ""] = each.split(":");
        return `mount --bind ${at(volume)} ${place}${path}`;
      }),
      "hostname web",
      // To enter the root; a runtime has done that before it drops capabilities.
      `exec setpriv --no-new-privs --bounding-set=-all,+sys_chroot${overlay.cap_add
        .map((each) => `,+${each.toLowerCase()}`)
        .join("")} chroot ${place} "$@"`,
    ];
    const script = mounts.join(" && ");
    const argv = [
      "env",
      "-i",
      ...told.env,
      "unshare",
      "--mount",
      "--uts",
      "sh",
      "-c",
      script,
      "sh",
      ...words,
    ];
    return site.host("web").inside(argv);
  };
  const start = () =>
    Bun.spawn(inImage([...told.args.slice(0, 1), ...overlay.command]), {
      stdin: "ignore",
      stdout: "ignore",
      stderr: Bun.file(at("log")),
    });
  const until = async (argv: string[]) => {
    for (let tries = 0; Bun.spawnSync(argv, { stdout: "ignore", stderr: "ignore" }).exitCode !== 0; tries++) {
      if (tries === 150) throw new Error(`${argv.join(" ")}\n${readFileSync(at("log"), "utf8")}`);
      await Bun.sleep(200);
    }
  };
  const inside = (argv: string[]) => site.host("web").inside(argv);

  test("joins with the key in its file, and another node reaches the service beside it", async () => {
    await site.plane.api("POST", "/api/org/acme/firewall_rules/", {
      direction: "inbound",
      protocol: "tcp",
      ports: "8000",
      peer: { any: true },
      target: { any: true },
    });
    const child = start();
    await until(inside(["ping", "-c", "1", "-W", "1", "10.77.0.1"]));
    const status = /CapEff:\s(\w+)\n/.exec(readFileSync(`/proc/${child.pid}/status`, "utf8"))?.[1];
    const allowed = (1n << 12n) | (1n << 13n) | (1n << 18n);
    expect(BigInt(`0x${status}`) & ~allowed).toBe(0n);
    const sidecar = Bun.spawn(
      inside([
        process.execPath,
        "-e",
        "Bun.serve({ port: 8000, fetch: () => new Response('from the sidecar') })",
      ]),
    );
    const fetchIt = "console.log(await (await fetch('http://10.77.0.2:8000')).text())";
    const ask = site.peer.inside([process.execPath, "-e", fetchIt]);
    await until(ask);
    expect(runSync(ask).trim()).toBe("from the sidecar");
    // As `docker exec` does it.
    const exec = ["nsenter", `--target=${child.pid}`, "--mount", "--net", "--root", "--wd"];
    await until([...exec, ...overlay.healthcheck.test.slice(1)]);
    sidecar.kill();
    child.kill("SIGTERM");
    expect(await child.exited).toBe(0);
  }, 120_000);

  test("started again, it needs no key: the volumes keep the registration", async () => {
    const nodes = JSON.stringify(await site.plane.api("GET", "/api/org/acme/nodes/"));
    expect(nodes).toContain('"name":"web"');
    const child = start();
    await until(inside(["ping", "-c", "1", "-W", "1", "10.77.0.1"]));
    child.kill("SIGTERM");
    expect(await child.exited).toBe(0);
    expect(JSON.stringify(await site.plane.api("GET", "/api/org/acme/nodes/")).match(/"id":/g)?.length).toBe(
      2,
    );
  }, 60_000);
});
