// Adds to the refusals of a control plane what to do next, which only the command line knows.

import { notFound } from "../../api/values.ts";
import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import { brand } from "../../brand.ts";
import type { Target } from "./target.ts";

type Remote = Extract<Target, { kind: "remote" }>;

/** The command that lists what a number in the path of a request names. */
const listings: Record<string, string> = {
  firewall_rules: "rule list",
  registration_tokens: "token list",
  service_tokens: "service-token list",
  webhooks: "webhook list",
  alarms: "alarm list",
  names: "name list",
  domains: "domain list",
};

/** The error with a sentence that names what the command named. Other errors come back as they are. */
export function explainRefusal(error: unknown, path: string, target: Target): unknown {
  if (!(error instanceof AppError)) return error;
  const { code, details } = error;
  const [, slug] = /^\/api\/org\/([^/]+)\//.exec(path) ?? [];
  if (code === "not_found" && slug !== undefined && error.message === notFound.organization) {
    const name = decodeURIComponent(slug);
    return new AppError(code, `There is no organization ${name}`, {
      ...details,
      hint: `\`${brand.executable} admin org list\` lists the organizations.`,
    });
  }
  const [, collection = ""] = /^\/api\/org\/[^/]+\/(\w+)\/\d+\/(?:\?|$)/.exec(path) ?? [];
  const listing = Object.hasOwn(listings, collection) ? listings[collection] : undefined;
  if (code === "not_found" && slug !== undefined && listing !== undefined && details.hint === undefined) {
    const line = `${brand.executable} admin ${listing} ${quoteWord(decodeURIComponent(slug))}`;
    return new AppError(code, error.message, { ...details, hint: `\`${line}\` lists what there is.` });
  }
  if (target.kind === "local") return error;
  if (code === "permission_denied") {
    const hint = isServiceToken(target)
      ? "A service token has no rights over users, tokens, updates in rings and other organizations: sign in as a user for that."
      : "Ask an owner of the organization for a higher role, or a staff user. On the control plane's machine, --local works with all rights.";
    return new AppError(code, `${error.message.replace(/\.$/, "")}: ${target.name}`, { ...details, hint });
  }
  if (code === "not_found" && error.message === notFound.path) {
    return new AppError(code, `${target.profile.api_base} does not know ${path.replace(/\?.*/, "")}`, {
      ...details,
      hint: `Its version may be older than this ${brand.executable}. Update the control plane, or check the URL.`,
    });
  }
  return error;
}

/** A token of a user that a flag gave is a JWT, which has three parts. A profile without a user has a service token. */
function isServiceToken({ profile, token }: Remote): boolean {
  return profile.email === null && !("given" in token && token.given.split(".").length === 3);
}
