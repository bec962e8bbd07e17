// A Windows program for tests: a fake overlay engine with -version, -test and -config. It carries no packets, because Wine
// has no tunnel driver.

import { readFileSync } from "node:fs";
import * as v from "valibot";

const Config = v.object({ pki: v.object({ ca: v.string(), cert: v.string(), key: v.string() }) });
const words = process.argv.slice(2);
const config = words[words.indexOf("-config") + 1] ?? "";

function fail(message: string): never {
  process.stdout.write(`level=error msg="${message}"\n`);
  process.exit(1);
}

if (words.includes("-version")) {
  process.stdout.write("Version: 1.10.3\n");
} else if (words.includes("--idle")) {
  setInterval(() => {}, 60_000);
} else {
  const { pki } = v.parse(Config, Bun.YAML.parse(readFileSync(config, "utf8")));
  for (const name of ["ca", "cert", "key"] as const) {
    if (!readFileSync(pki[name], "utf8").includes("-----BEGIN NEBULA ")) fail(`Cannot load pki.${name}`);
  }
  if (!words.includes("-test")) {
    process.stdout.write('level=info msg="Nebula interface is active" interface=stand-in\n');
    setInterval(() => {}, 60_000);
  }
}
