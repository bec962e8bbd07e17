// The two commands of the README on a Debian that has nothing but Node: built, installed, shown, in under three minutes.

import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { installMissing, runSync } from "../support/debian.ts";
import { debianTree, overlayTree } from "../support/debian-tree.ts";

/** What this machine needs to reach the network; another machine would have its own. */
const own = /^(https?_proxy|no_proxy|ssl_cert_file|node_extra_ca_certs|npm_config_registry)$/i;
const files = ["/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"];

test("sh install --from-source && agent demo --yes", async () => {
  expect(installMissing(["/usr/sbin/debootstrap", "/usr/bin/git"])).toBeUndefined();
  using tree = overlayTree(debianTree("node", ["nodejs", "npm", "ca-certificates"]));
  const { root } = tree;
  for (const path of files) writeFileSync(join(root, path), readFileSync(path));
  runSync([
    "git",
    "clone",
    "--quiet",
    "--depth=1",
    `file://${join(import.meta.dir, "../..")}`,
    join(root, "src"),
  ]);
  const mounts = ["proc", "sys", "dev"].map((name) => `mount --rbind /${name} ${root}/${name}`);
  const command = "cd /src && sh install --from-source && agent demo --yes";
  const begin = performance.now();
  // Its own mounts and processes, so that all of it is gone when the first process is.
  const child = Bun.spawn(
    [
      "unshare",
      "--mount",
      "--pid",
      "--fork",
      "--kill-child",
      "sh",
      "-ec",
      `${mounts.join("\n")}
      mount -t proc proc ${root}/proc
      exec chroot ${root} sh -c "${command}"`,
    ],
    {
      env: {
        ...Object.fromEntries(Object.entries(process.env).filter(([name]) => own.test(name))),
        PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        HOME: "/root",
      },
      stdin: "ignore",
      stdout: "pipe",
      stderr: "inherit",
    },
  );
  const [said, status] = await Promise.all([new Response(child.stdout).text(), child.exited]);
  const seconds = (performance.now() - begin) / 1000;
  process.stderr.write(`${said}from a clone to the end of the demo: ${seconds.toFixed(0)} s\n`);
  expect(status).toBe(0);
  expect(seconds).toBeLessThan(180);
}, 1_200_000);
