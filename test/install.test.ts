// The install script in every supported shell, with signed releases whose executable is a stand-in.

import { afterAll, describe, expect, test } from "bun:test";
import {
  chmodSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { hostTarget } from "../build.ts";
import { serveReleases, shells } from "./support/install-script.ts";
import { makeRelease, makeReleaseKey } from "./support/releases.ts";

const directory = mkdtempSync(join(tmpdir(), "install-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));
const at = (...names: string[]) => join(directory, ...names);

const key = makeReleaseKey();
const otherKey = makeReleaseKey();
const standIn = (version: string, extra = "") =>
  Buffer.from(`#!/bin/sh\n${extra}\n[ "$1" = version ] && echo "agent ${version} (stand-in, test)"\n`);
const release = (name: string, version: string, extra?: string, expiresAt?: string, signer = key) =>
  makeRelease(
    at(name),
    {
      version,
      executables: { [hostTarget()]: standIn(version, extra) },
      ...(expiresAt ? { expiresAt } : {}),
    },
    signer,
  );
await release("v1", "1.9.0");
await release("v2", "1.10.0");
await release("bad", "1.11.0", "exit 9");
await release("expired", "1.12.0", "", "2026-01-02T00:00:00Z");
await release("foreign", "1.13.0", "", undefined, otherKey);

/** A PATH with only these programs, by names or paths. */
function pathWith(programs: string[]): string {
  const bin = mkdtempSync(at("path-"));
  for (const program of programs) {
    const found = Bun.which(program);
    if (found !== null) symlinkSync(found, join(bin, basename(program)));
  }
  return bin;
}
const basics =
  "sh cat cut date dd dirname getconf grep head id ldd ln ls mkdir mktemp mv chmod cmp cp printf rm sed sync sysctl tail tar tr uname wc gzip sha256sum".split(
    " ",
  );

const environment = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C", TMPDIR: directory };
const unprivileged = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

const server = await serveReleases(at("v1"), at("sent"));
afterAll(() => server[Symbol.dispose]());
const { url } = server;

type Run = { status: number; output: string };

function run(
  shell: string[],
  script: string,
  args: string[],
  env: Record<string, string> = {},
  cwd = directory,
): Run {
  const { exitCode, stdout, stderr } = Bun.spawnSync([...shell, script, ...args], {
    cwd,
    env: { ...environment, ...env },
    stdin: "ignore",
  });
  return { status: exitCode, output: stdout.toString() + stderr.toString() };
}

const versionAt = (prefix: string) =>
  Bun.spawnSync([join(prefix, "bin/agent"), "version"])
    .stdout.toString()
    .split(" ")[1];
const leftovers = () => readdirSync(directory).filter((name) => name.startsWith("overlay-agent."));

for (const [name, shell] of Object.entries(shells)) {
  describe.skipIf(!existsSync(shell[0] ?? ""))(name, () => {
    const prefix = at(`prefix-${name}`);
    const install = (from: string, ...args: string[]) =>
      run(shell, at(from, "install"), ["--prefix", prefix, "--no-service", ...args]);

    test("installs, upgrades, refuses an older version, and takes it with --version", () => {
      expect(install("v1")).toMatchObject({ status: 0 });
      expect(versionAt(prefix)).toBe("1.9.0");
      expect(install("v1")).toMatchObject({ status: 0, output: expect.stringContaining("already") });
      expect(install("v2")).toMatchObject({ status: 0 });
      expect(versionAt(prefix)).toBe("1.10.0");
      expect(readFileSync(join(prefix, "bin/agent.old"), "utf8")).toContain("1.9.0");
      expect(install("v1")).toMatchObject({ status: 1, output: expect.stringContaining("older") });
      expect(versionAt(prefix)).toBe("1.10.0");
      expect(install("v1", "--version", "1.9.0")).toMatchObject({ status: 0 });
      expect(versionAt(prefix)).toBe("1.9.0");
      expect(readdirSync(join(prefix, "bin")).sort()).toEqual(["agent", "agent.old"]);
      // The address of the last release, for updates.
      const address = join(prefix, "lib/overlay-agent/releases.url");
      expect(readFileSync(address, "utf8")).toBe(`${at("v1")}\n`);
      expect(statSync(address).mode & 0o777).toBe(0o644);
    });

    test("refuses bad releases with the reason, and keeps the installed version", () => {
      const refused: [string, string[], string][] = [
        ["bad", [], "does not run on this machine"],
        ["expired", [], "expired on 20260102"],
        ["v2", ["--release-key", otherKey.text], "not signed by the key"],
        ["v2", ["--release-url", at("foreign")], "not signed by the key"],
        ["v2", ["--version", "3.0.0"], "is version 1.10.0, not 3.0.0"],
        ["v2", ["--release-url", at("nowhere")], "cannot read"],
        ["v2", ["--release-url", "http://example.com/"], "https://"],
      ];
      for (const [from, args, reason] of refused) {
        expect(install(from, ...args)).toMatchObject({ status: 1, output: expect.stringContaining(reason) });
        expect(versionAt(prefix)).toBe("1.9.0");
      }
    });

    test("refuses a changed archive, manifest or signature", () => {
      const alter = (file: string, change: (bytes: Buffer) => Buffer) => {
        const changed = mkdtempSync(at("altered-"));
        for (const each of readdirSync(at("v2"))) {
          const bytes = readFileSync(at("v2", each));
          writeFileSync(join(changed, each), each.includes(file) ? change(bytes) : bytes);
        }
        return install("v2", "--release-url", changed);
      };
      const flip = (bytes: Buffer) => bytes.with(100, (bytes[100] ?? 0) ^ 1);
      const results = [
        alter(".tar.", (bytes) => Buffer.from(flip(bytes))),
        alter(".tar.", (bytes) => bytes.subarray(0, -1)),
        alter(".tar.", (bytes) => Buffer.concat([bytes, bytes])),
        alter("manifest.json", (bytes) => Buffer.from(bytes.toString().replace("1.10.0", "1.10.1"))),
        alter("minisig", (bytes) => Buffer.from(flip(bytes))),
      ];
      expect(results.map(({ status }) => status)).toEqual([1, 1, 1, 1, 1]);
      expect(versionAt(prefix)).toBe("1.9.0");
    });

    test("--dry-run and --uninstall", () => {
      expect(install("v2", "--dry-run")).toMatchObject({
        status: 0,
        output: expect.stringContaining("would"),
      });
      expect(versionAt(prefix)).toBe("1.9.0");
      expect(install("v2", "--uninstall", "--dry-run")).toMatchObject({ status: 0 });
      expect(existsSync(join(prefix, "bin/agent"))).toBe(true);
      expect(install("v2", "--uninstall")).toMatchObject({ status: 0 });
      expect([readdirSync(join(prefix, "bin")), readdirSync(join(prefix, "lib"))]).toEqual([[], []]);
      expect(install("v2", "--uninstall")).toMatchObject({ status: 0 });
    });

    test("wrong arguments exit with 2 and mention --help", () => {
      for (const args of [
        ["--bogus"],
        ["word"],
        ["--purge"],
        ["--purge-control-plane"],
        ["--prefix"],
        ["--version="],
      ]) {
        expect(run(shell, at("v1", "install"), args)).toMatchObject({
          status: 2,
          output: expect.stringContaining("--help"),
        });
      }
      expect(run(shell, at("v1", "install"), ["--help"])).toMatchObject({ status: 0 });
    });

    test("a script truncated at any 256th byte installs nothing", () => {
      const script = readFileSync(at("v1", "install"));
      const untouched = at(`untouched-${name}`);
      /** As `curl … | sh` reads it; posh has no -s. */
      const fromInput = name === "posh" ? ["/dev/stdin"] : ["-s", "--"];
      const cutAt = (length: number) => {
        const argv = [...shell, ...fromInput, "--prefix", untouched, "--no-service"];
        Bun.spawnSync(argv, { env: environment, stdin: script.subarray(0, length), stderr: "ignore" });
        return existsSync(untouched);
      };
      for (let length = 0; length < script.length - 2; length += 256) expect(cutAt(length)).toBe(false);
      // Every byte of the last line: it works completely or not at all.
      for (let length = script.lastIndexOf("{ main"); length < script.length - 2; length++) {
        expect(cutAt(length)).toBe(false);
      }
      expect(cutAt(script.length)).toBe(true);
    });

    test("uses wget without curl", () => {
      const fetched = at(`fetched-${name}`);
      const bin = pathWith([...basics, "wget", "busybox"]);
      const result = run(
        shell,
        at("v1", "install"),
        ["--prefix", fetched, "--no-service", "--release-url", url],
        {
          PATH: bin,
        },
      );
      expect(result).toMatchObject({ status: 0 });
      expect(versionAt(fetched)).toBe("1.9.0");
      expect(
        run(shell, at("v1", "install"), ["--prefix", fetched, "--release-url", url], {
          PATH: pathWith(basics),
        }),
      ).toMatchObject({
        status: 1,
        output: expect.stringContaining("curl or wget"),
      });
    });

    test("a target without write permission fails before any download", () => {
      const place = at(`readonly-${name}`);
      mkdirSync(place, { mode: 0o555 });
      chmodSync(directory, 0o755);
      const result = run(
        process.getuid?.() === 0 ? [...unprivileged, ...shell] : shell,
        at("v1", "install"),
        ["--prefix", place, "--release-url", at("nowhere")],
        {},
        "/",
      );
      expect(result.status).toBe(1);
      expect(result.output).toContain("--prefix");
      expect(result.output).not.toContain("nowhere");
    });
  });
}

describe("install", () => {
  const dash = shells["dash"] ?? [];
  const from = async (programs: string[], ...args: string[]) => {
    const prefix = mkdtempSync(at("prefix-"));
    const child = Bun.spawn([...dash, at("v1", "install"), "--prefix", prefix, "--no-service", ...args], {
      env: {
        PATH: pathWith([
          ...basics.filter((each) => !programs.some((own) => basename(own) === each)),
          ...programs,
        ]),
        TMPDIR: directory,
      },
      stdin: "ignore",
      stdout: "ignore",
      stderr: "pipe",
    });
    const [output, status] = await Promise.all([new Response(child.stderr).text(), child.exited]);
    return { status, output, installed: existsSync(join(prefix, "bin/agent")) };
  };

  test("works with curl or wget, and with minisign, OpenSSL or the hash in the script", async () => {
    for (const programs of [["curl", "minisign"], ["wget", "openssl"], ["curl", "openssl"], ["wget"]]) {
      expect(await from(programs, "--release-url", url)).toMatchObject({ status: 0, installed: true });
    }
  });

  test("stops a download at its limit, even without Content-Length", async () => {
    for (const program of ["curl", "wget"]) {
      expect(await from([program, "minisign"], "--release-url", `${url}endless/`)).toMatchObject({
        status: 1,
        output: expect.stringContaining("manifest.json is larger than 65536 bytes"),
        installed: false,
      });
      // Includes the buffers between server and client.
      expect(Number(readFileSync(at("sent"), "utf8"))).toBeLessThan(16 * 1024 * 1024);
    }
  });

  test("ends a download that drips", async () => {
    const wrappers = {
      curl: 'exec /usr/bin/curl "$@" --speed-time 2',
      // timeout --foreground SECONDS …
      timeout: 'shift 2; exec /usr/bin/timeout --foreground 2 "$@"',
    };
    for (const [name, line] of Object.entries(wrappers))
      writeFileSync(at(name), `#!/bin/sh\n${line}\n`, { mode: 0o755 });
    const programs = [
      [at("curl"), "minisign"],
      ["wget", at("timeout"), "minisign"],
    ];
    for (const each of programs) {
      expect(await from(each, "--release-url", `${url}dripping/`)).toMatchObject({
        status: 1,
        output: expect.stringContaining("cannot download"),
        installed: false,
      });
    }
  }, 20_000);

  test("refuses a release of another key with each of them", async () => {
    for (const programs of [["minisign"], ["openssl"], []]) {
      expect(await from(programs, "--release-url", at("foreign"))).toMatchObject({
        status: 1,
        installed: false,
      });
    }
  });

  test("names the missing program", async () => {
    expect(await from([], "--release-url", url)).toMatchObject({
      status: 1,
      output: expect.stringContaining("curl or wget"),
    });
    const without = (missing: string) => basics.splice(basics.indexOf(missing), 1);
    without("gzip");
    expect(await from([])).toMatchObject({
      status: 1,
      output: expect.stringContaining("it needs tar and gzip"),
      installed: false,
    });
    basics.push("gzip");
  });

  test("takes the .tar.zst where zstd is installed, and the .tar.gz elsewhere; root always that, and keeps it", async () => {
    mkdirSync(at("user"));
    writeFileSync(at("user/id"), "#!/bin/sh\necho 1000\n", { mode: 0o755 });
    for (const suffix of [".gz", ".zst"]) {
      const copy = mkdtempSync(at("one-archive-"));
      for (const each of readdirSync(at("v1")))
        if (!each.includes(".tar.") || each.endsWith(suffix))
          writeFileSync(join(copy, each), readFileSync(at("v1", each)));
      expect(readdirSync(copy).filter((each) => each.includes(".tar."))).toHaveLength(1);
      for (const programs of [[], ["zstd"]]) {
        const installed = (suffix === ".zst") === programs.includes("zstd");
        expect(await from([...programs, at("user/id")], "--release-url", copy)).toMatchObject({ installed });
        expect(await from(programs, "--release-url", copy)).toMatchObject({ installed: suffix === ".gz" });
      }
    }
  });

  test("shows progress only on a terminal", async () => {
    for (const [program, bar] of [
      ["curl", /#+.*100[.,]0%/],
      ["wget", /100%\[=*>?\]/],
    ] as const) {
      const command = `dash ${at("v1", "install")} --no-service --release-url ${url} --prefix ${at(`shown-${program}`)}`;
      const env = {
        ...environment,
        PATH: pathWith([...basics, "dash", program]),
        TERM: "xterm",
        COLUMNS: "100",
      };
      // Do not block this process.
      const child = Bun.spawn(["/usr/bin/script", "-qec", command, "/dev/null"], {
        env,
        stdin: "ignore",
        stderr: "ignore",
      });
      expect(await new Response(child.stdout).text()).toMatch(bar);
      expect((await from([program], "--release-url", url)).output).not.toMatch(bar);
    }
  });

  test("works after a killed run", () => {
    const prefix = at("prefix-killed");
    const install = (from: string) => run(dash, at(from, "install"), ["--prefix", prefix, "--no-service"]);
    expect(install("v1")).toMatchObject({ status: 0 });
    linkSync(join(prefix, "bin/agent"), join(prefix, "bin/agent.old"));
    expect(install("v2")).toMatchObject({ status: 0 });
    expect(versionAt(prefix)).toBe("1.10.0");
    expect(readFileSync(join(prefix, "bin/agent.old"), "utf8")).toContain("1.9.0");
  });

  test("leaves no temporary files, and the script has at most 630 lines", () => {
    expect(leftovers()).toEqual([]);
    const script = readFileSync(join(import.meta.dir, "../install"), "utf8");
    expect(script.split("\n").length).toBeLessThanOrEqual(630);
    expect(script.trimEnd().split("\n").at(-1)).toBe('{ main "$@"; exit; }');
  });

  test.skipIf(!existsSync("/usr/bin/shellcheck"))("shellcheck accepts the script", () => {
    const script = join(import.meta.dir, "../install");
    expect(Bun.spawnSync(["/usr/bin/shellcheck", "-s", "sh", script]).stdout.toString()).toBe("");
  });
});
