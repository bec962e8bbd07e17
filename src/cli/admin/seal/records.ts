// What a signer has signed, as files on the signer's machine: the next seal is compared with it, and no second seal gets the
// same number.

import { join } from "node:path";
import { profilesDirectory } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import type { Context } from "../../command.ts";
import { valueFlag } from "../../values.ts";

export const recordsFlag = {
  records: valueFlag(
    "DIR",
    "Where this signer's seals and certificates are noted (default: beside the profiles of `login`)",
  ),
};

/** A seal that was signed here. */
export type Kept = { number: number; text: string; signature: string };

export type Records = {
  directory: string;
  /** The seal with the highest number that was signed here. */
  newest(): Kept | undefined;
  /** Written before the seal is published, so that a second one with its number is never signed. */
  keep(seal: Kept): void;
  /** The certificates that were made here, as JSON (sign-seal.ts). */
  issued(): string | undefined;
  keepIssued(json: string): void;
};

/** The records of an organization. Makes their directory at the first write. Throws usage if no place is known. */
export async function openRecords({ values, system }: Context, slug: string): Promise<Records> {
  const profiles = profilesDirectory(system.platform, system.env);
  const base = values.text("records") ?? (profiles === undefined ? undefined : join(profiles, "..", "seals"));
  if (base === undefined)
    throw new AppError("usage", "Give the directory of your records with --records DIR");
  const { makeDirectory, readTextIfThere, textOrEmpty, writeFileAtomic } =
    await import("../../../base/files.ts");
  const { readdirSync, existsSync } = await import("node:fs");
  const directory = join(base, slug);
  const pathOf = (name: string) => join(directory, name);
  const numbers = () =>
    existsSync(directory)
      ? readdirSync(directory)
          .flatMap((name) => (/^[1-9]\d{0,15}\.seal$/.test(name) ? [Number.parseInt(name)] : []))
          .toSorted((a, b) => a - b)
      : [];
  const write = (name: string, text: string) => {
    makeDirectory(base, 0o700);
    makeDirectory(directory, 0o700);
    writeFileAtomic(pathOf(name), text, 0o600);
  };
  return {
    directory,
    newest() {
      const number = numbers().at(-1);
      if (number === undefined) return undefined;
      const text = textOrEmpty(pathOf(`${number}.seal`));
      return { number, text, signature: textOrEmpty(pathOf(`${number}.seal.sig`)) };
    },
    keep({ number, text, signature }) {
      if (numbers().includes(number))
        throw new AppError("conflict", `You have signed a seal ${number} already`);
      // The signature first: a seal that is noted can be published.
      write(`${number}.seal.sig`, signature);
      write(`${number}.seal`, text);
    },
    issued: () => readTextIfThere(pathOf("certificates.json")),
    keepIssued: (json) => write("certificates.json", json),
  };
}
