// `agent names allow|disallow SUFFIX`: whether names of an organization may end in another domain on this machine.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { Context } from "../command.ts";

const run = brand.executable;
/** Maximum of the file. */
const maxSuffixes = 100;

/** Lets an organization use a suffix for names on this machine, or takes that back. Only root may. */
export async function changeSuffix(
  verb: "allow" | "disallow",
  suffix: string,
  context: Context,
): Promise<void> {
  const { settings, system, output } = context;
  const permissions = await import("../../node/files/permissions.ts");
  const { join } = await import("node:path");
  const chosen = await (verb === "allow" ? chooseNew(suffix, context) : chooseHolders(suffix, context));
  const changes = chosen.map((slug) => {
    const directory = join(settings.configRoot, slug);
    const others = permissions.readPermissions(directory).name_suffixes.filter((each) => each !== suffix);
    return { directory, suffixes: verb === "allow" ? [...others, suffix] : others };
  });
  if (changes.some(({ suffixes }) => suffixes.length > maxSuffixes)) {
    throw new AppError("conflict", `${maxSuffixes} suffixes are allowed already, the maximum`, {
      hint: `End one that is not needed: ${run} names disallow SUFFIX`,
    });
  }
  if (settings.dryRun) {
    return output.plan(
      changes.flatMap(({ directory, suffixes }) => permissions.planAllowedSuffixes(directory, suffixes)),
    );
  }
  const { requireRoot } = await import("../../node/enroll/service-checks.ts");
  const { withLock } = await import("../../node/files/lock.ts");
  requireRoot(system);
  for (const { directory, suffixes } of changes) {
    await withLock(directory, "names", system, async () =>
      permissions.writeAllowedSuffixes(directory, suffixes),
    );
  }
  const slugs = chosen.join(", ");
  if (verb === "disallow") {
    return output.result(
      { suffix, allowed: false, teams: chosen },
      `Names of ${slugs} no longer end in .${suffix} here\n`,
    );
  }
  output.result({ suffix, allowed: true, teams: chosen }, `Names of ${slugs} may end in .${suffix} here\n`);
  output.say(`With systemd-resolved, this machine finds no other names below ${suffix} while names are on.`);
  for (const slug of chosen) await sayWhatIsMissing(suffix, slug, context);
}

/** The organization that gets the suffix, alone in the list. Throws if the machine must not answer for it. */
async function chooseNew(suffix: string, { settings, values }: Context): Promise<string[]> {
  const v = await import("valibot");
  const { NameSuffix } = await import("../../protocol/names.ts");
  const parsed = v.safeParse(NameSuffix, suffix);
  if (!parsed.success) throw new AppError("usage", `"${suffix}": ${parsed.issues[0].message}`);
  const { chooseSlugs } = await import("../../daemon/asking/choose-slugs.ts");
  const slugs = chooseSlugs(settings.configRoot, values.text("org-slug"));
  const sending: string[] = [];
  for (const each of slugs) if ((await sentSuffix(each, settings)) === suffix) sending.push(each);
  // Without --org-slug: the only organization, else the only one whose control plane sends this suffix.
  const [slug, ...others] = slugs.length === 1 ? slugs : sending;
  if (slug === undefined || others.length > 0) {
    throw new AppError(
      "usage",
      `Say with --org-slug which organization may have ${suffix}: ${slugs.join(", ")}`,
    );
  }
  const { whyRefused } = await import("../../node/names/suffixes.ts");
  const why = await whyRefused(settings.configRoot, slug, suffix);
  if (why === undefined) return [slug];
  throw new AppError("conflict", `Names must not end in .${suffix} on this machine: ${why}`, {
    hint: "Choose a domain of your own that holds nothing else.",
  });
}

/** The organizations that have the suffix. Reads permissions alone: other files may be damaged. */
async function chooseHolders(suffix: string, { settings, values }: Context): Promise<string[]> {
  const { readPermissions } = await import("../../node/files/permissions.ts");
  const { join } = await import("node:path");
  const { chooseSlugs } = await import("../../daemon/asking/choose-slugs.ts");
  const found = chooseSlugs(settings.configRoot, values.text("org-slug")).filter((slug) =>
    readPermissions(join(settings.configRoot, slug)).name_suffixes.includes(suffix),
  );
  if (found.length > 0) return found;
  throw new AppError("not_found", `The suffix ${suffix} is not allowed on this machine`, {
    hint: `\`${run} names\` shows the suffixes.`,
  });
}

/** The suffix that the control plane sends for this organization. */
async function sentSuffix(slug: string, { configRoot }: Context["settings"]): Promise<string | undefined> {
  const { readHosts } = await import("../../node/files/hosts.ts");
  const { join } = await import("node:path");
  return readHosts(join(configRoot, slug))?.suffix;
}

async function sayWhatIsMissing(
  suffix: string,
  slug: string,
  { settings, system, output }: Context,
): Promise<void> {
  const { areNamesOn } = await import("../../node/enroll/optional-services.ts");
  if ((await sentSuffix(slug, settings)) !== suffix)
    output.say(`An administrator chooses it: ${run} admin org update ${slug} --name-suffix ${suffix}`);
  if (!areNamesOn(settings, system))
    output.say(`Programs do not find names. To change that: sudo ${run} names --on`);
}
