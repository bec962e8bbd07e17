// Which directories of the configuration root are organizations.

import { expect, test } from "bun:test";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../../src/base/errors.ts";
import { listOrganizations } from "../../../src/node/files/list-organizations.ts";
import { openOrganization } from "../../../src/node/files/organizations.ts";
import { runSync } from "../../support/debian.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

test("lists directories with node-config.json in order, damaged ones too, and what lies in the place of one", () => {
  using temporary = temporaryDirectory();
  const root = temporary.path;
  const config = (name: string) => join(root, name, "node-config.json");
  for (const name of ["zeta", "acme", "a-", ".hidden", "Upper", "old.bak", "empty", "broken", "loop", "odd"])
    mkdirSync(join(root, name));
  for (const name of ["zeta", "acme", "a-", ".hidden", "Upper", "old.bak"]) writeFileSync(config(name), "{}");
  symlinkSync("/nowhere", config("broken"));
  symlinkSync("node-config.json", config("loop"));
  mkdirSync(config("odd"));
  symlinkSync("acme", join(root, "linked"));
  symlinkSync("/nowhere", join(root, "dangling"));
  writeFileSync(join(root, "file"), "");
  runSync(["mkfifo", join(root, "fifo")]);
  const socket = Bun.listen({ unix: join(root, "socket"), socket: { data() {} } });
  const found = [
    "a-",
    "acme",
    "broken",
    "dangling",
    "fifo",
    "file",
    "linked",
    "loop",
    "odd",
    "socket",
    "zeta",
  ];
  expect(listOrganizations(root)).toEqual(found);
  const kinds = {
    file: "a file",
    linked: "a link",
    dangling: "a link",
    fifo: "a FIFO",
    socket: "a socket",
  };
  for (const [slug, kind] of Object.entries(kinds))
    expect(() => openOrganization(root, slug)).toThrow(
      new AppError(
        "bad_configuration",
        `${join(root, slug)} is ${kind}, not the directory of an organization`,
      ),
    );
  socket.stop(true);
});

test("a missing configuration root is empty, a file in its place is an error", () => {
  using temporary = temporaryDirectory();
  const path = join(temporary.path, "etc");
  expect(listOrganizations(path)).toEqual([]);
  writeFileSync(path, "");
  expect(() => listOrganizations(path)).toThrow(AppError);
});
