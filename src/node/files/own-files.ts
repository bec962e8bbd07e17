// Finds files of an organization's directory that root's programs obey although other users can change them. Such a user could
// take over this machine: by a shell of the engine in overrides.yml, or by other keys of the control plane. Programs of other
// users are not checked: they have only the rights of these users.
//
// Each file of the directory from which a program of root takes an instruction, a key or a permission must be in `obeyed`, and
// the program must call one of the functions below before it reads the file.

import { dirname, join } from "node:path";
import { AppError } from "../../base/errors.ts";
import { foreignFile, foreignPlace, type Foreign } from "../../platform/program-safety.ts";

const obeyed = [
  "overrides.yml",
  "permissions.json",
  "seal.json",
  "seal-enforced",
  "node-config.json",
  "config.yml",
  "ca.crt",
  "host.crt",
  "host.key",
  "node.crt",
  "node.key",
  "credentials.json",
  "api-ca.crt",
  "orders.json",
  "hosts.json",
  "update-order.json",
  "drill.json",
];

/** Files that root obeys although other users can change them. For doctor. */
export function foreignFiles(directory: string): Foreign[] {
  const files = obeyed.map((name) => foreignFile(join(directory, name)));
  const found = [...foreignDirectories(directory), ...files.filter((file) => file !== undefined)];
  // Once for each path: several files may be links into the same generation, which others can change.
  return [...new Map(found.map((foreign) => [foreign.path, foreign])).values()];
}

function foreignDirectories(directory: string): Foreign[] {
  const places = [dirname(directory), directory, join(directory, "generations")];
  return places.flatMap((path) => foreignPlace(path) ?? []);
}

/**
 * Throws foreign_files if others than root can change the directory: root must not even write there, because links could lead
 * elsewhere.
 */
export function refuseForeignDirectory(directory: string): void {
  const [found] = foreignDirectories(directory);
  if (found !== undefined) throw refusalOf("foreign_files", found);
}

/** Throws bad_configuration: with this code, revocations are applied all the same (contact/sync.ts). */
export function refuseForeignFiles(directory: string): void {
  const [found] = foreignFiles(directory);
  if (found !== undefined) throw refusalOf("bad_configuration", found);
}

/** Like refuseForeignFiles, for one file. */
export function refuseForeignFile(path: string): void {
  const found = foreignFile(path);
  if (found !== undefined) throw refusalOf("bad_configuration", found);
}

function refusalOf(code: "bad_configuration" | "foreign_files", { why, remedy }: Foreign): AppError {
  return new AppError(code, `Only root may be able to change the files of an organization: ${why}`, {
    hint: `Check the content, then run: ${remedy}`,
  });
}
