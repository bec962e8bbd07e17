// `bun build.ts --publish` for one target: what it refuses, what it lays out for an upload, and what its checks find.

import { afterAll, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import packageJson from "../../package.json" with { type: "json" };
import { hostTarget } from "../../build.ts";
import { finishPublication, notesOf, sbomOf } from "../../packaging/publish.ts";
import { root } from "../support/agent.ts";
import { inCi, installMissing } from "../support/debian.ts";
import { cannotMakeTrees } from "../support/debian-tree.ts";
import { buildVersion, makeRelease, makeReleaseKey, releaseKey, standIn } from "../support/releases.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const { version } = packageJson;
const missing = cannotMakeTrees() ?? installMissing(["/usr/bin/minisign", "/usr/bin/zstd", "/usr/bin/gpg"]);
if (missing !== undefined && inCi) throw new Error(missing);
const work = temporaryDirectory();
afterAll(() => work[Symbol.dispose]());
const at = (...names: string[]) => join(work.path, ...names);

/** The key as a file of minisign without a password. */
function secretKeyFile(): string {
  const { id, seed, key } = releaseKey;
  const head = Buffer.concat([Buffer.from("Ed\0\0B2", "latin1"), Buffer.alloc(48)]);
  const text = Buffer.concat([head, id, seed, key, Buffer.alloc(32)]).toString("base64");
  writeFileSync(at("release.key"), `untrusted comment: a key of tests\n${text}\n`);
  return at("release.key");
}

function publish(...flags: string[]): { status: number; output: string } {
  const argv = [
    process.execPath,
    "build.ts",
    "--publish",
    "--secret-key",
    secretKeyFile(),
    "--outdir",
    at("out"),
  ];
  const { exitCode, stdout, stderr } = Bun.spawnSync(
    [...argv, "--fast", "--target", hostTarget(), ...flags],
    { cwd: root },
  );
  return { status: exitCode, output: stdout.toString() + stderr.toString() };
}

test("the notes are the section of the version", () => {
  const changelog = "# Changelog\n\n## 0.2.0\n\n### New\n\n- One\n\n## 0.1.0\n\n- First\n";
  expect(notesOf(changelog, "0.2.0")).toBe("### New\n\n- One");
  for (const other of ["0.3.0", "0.2"]) expect(() => notesOf(changelog, other)).toThrow("has no section");
  expect(() => notesOf("## 0.2.0\n\n## 0.1.0\n\n- First\n", "0.2.0")).toThrow("an empty one");
});

test("the list of components names what is bundled, with licenses, and nothing of development alone", () => {
  const Component = v.object({
    name: v.string(),
    version: v.string(),
    licenses: v.optional(v.array(v.unknown())),
  });
  const Bom = v.pipe(v.string(), v.parseJson(), v.object({ components: v.array(Component) }));
  const text = sbomOf(readFileSync(join(root, "bun.lock"), "utf8"), version, 1_790_000_000);
  const { components } = v.parse(Bom, text);
  const names = components.map(({ name }) => name);
  for (const name of ["bun", ...Object.keys(packageJson.dependencies)]) expect(names).toContain(name);
  for (const name of ["knip", "oxlint", "bun-types"]) expect(names).not.toContain(name);
  const all = components.map((each) => `${each.name}@${each.version}`);
  expect(new Set(all).size).toBe(all.length);
  // Two packages below ours name none.
  for (const { name, licenses } of components)
    if (Object.hasOwn(packageJson.dependencies, name))
      expect([name, licenses]).not.toEqual([name, undefined]);
});

test.skipIf(missing !== undefined)(
  "a release is built, laid out and checked, with an update from the former one",
  async () => {
    expect(publish("--version", "9.9.9", "--allow-dirty")).toEqual({
      status: 1,
      output: expect.stringContaining('has no section "## 9.9.9"'),
    });
    const executables = { [hostTarget()]: readFileSync(buildVersion(work.path, "0.1.0")) };
    await makeRelease(at("former"), { version: "0.1.0", executables }, releaseKey);
    const { status, output } = publish(
      "--allow-dirty",
      "--no-packages",
      "--former",
      at("former"),
      "--release-url",
      "https://control.example.org/releases/",
    );
    expect({ status, output }).toMatchObject({ status: 0 });
    expect(output.match(/^checked: .*$/gm)).toEqual([
      "checked: minisign accepts the list of programs",
      "checked: minisign accepts SHA256SUMS",
      "checked: SHA256SUMS matches",
      "checked: a bare Debian installs it by its script",
      "checked: an installed 0.1.0 updates to it",
    ]);
    const files = readdirSync(at("out"));
    for (const name of [
      "NOTES.md",
      "SHA256SUMS",
      "SHA256SUMS.minisig",
      "install",
      "manifest.json",
      "sbom.cdx.json",
    ])
      expect(files).toContain(name);
    expect(readFileSync(at("out/SHA256SUMS"), "utf8")).toContain("sbom.cdx.json");
    expect(readFileSync(at("out/NOTES.md"), "utf8")).toContain(`minisign -V -P ${releaseKey.text}`);
  },
  600_000,
);

test.skipIf(missing !== undefined)(
  "each check finds what is wrong",
  async () => {
    const executables = { [hostTarget()]: standIn(version, "exit 0") };
    const lay = async (key = releaseKey, content = executables, sequence = 5) => {
      rmSync(at("bad"), { recursive: true, force: true });
      mkdirSync(at("bad"));
      writeFileSync(at("bad/sbom.cdx.json"), "{}");
      await makeRelease(at("bad"), { version, sequence, executables: content }, key, ["sbom.cdx.json"]);
    };
    const finish = (former?: string) =>
      finishPublication({ outdir: at("bad"), version, publicKey: releaseKey.text, former, isQuick: true });
    await lay(makeReleaseKey());
    expect(() => finish()).toThrow("manifest.json");
    await lay();
    writeFileSync(at("bad/sbom.cdx.json"), "changed");
    expect(() => finish()).toThrow("sbom.cdx.json: FAILED");
    await lay(releaseKey, { [hostTarget()]: standIn("0.1.7", "exit 0") });
    expect(() => finish()).toThrow("The installed program is 0.1.7");
    await lay();
    expect(() => finish()).not.toThrow();
    const former = { version: "0.1.0", sequence: 6, executables };
    await makeRelease(at("later"), former, releaseKey);
    expect(() => finish(at("later"))).toThrow("a higher version and number");
  },
  300_000,
);
