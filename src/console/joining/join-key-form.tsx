// The form of a join key, for the page that adds nodes: what the key is for, and the same as a request and a command.

import { inWords, parseDuration } from "../../base/quantities.ts";
import { registrationTokensApi } from "../../api/tokens/registration-tokens.ts";
import { useState } from "preact/hooks";
import { call } from "../contact/api.ts";
import { partsOf, sentencesOf } from "../words/field-parts.ts";
import { currentSlug } from "../contact/me.ts";
import type { Words } from "../words/terminal.ts";
import { Check, FormFailure, Text, useAction } from "../ui/form.tsx";
import { useApproval } from "./arrival.tsx";
import type { Token } from "./paste.tsx";
import { GroupsField } from "../pages/groups-field.tsx";
import { plural } from "../words/numbers.ts";

/** What the join key will be for, as it was typed. */
export type Draft = { groups: string; uses: string; expires_in: string; name: string; isApproved: boolean };

export function bodyOf(
  { groups, uses, expires_in, name, isApproved }: Draft,
  { isLighthouse }: { isLighthouse: boolean },
) {
  return {
    ...(name.trim() === "" ? {} : { name: name.trim() }),
    uses: Number(uses),
    expires_in,
    groups: partsOf(groups),
    is_lighthouse: isLighthouse,
    ...(isApproved ? { approved: true } : {}),
  };
}

/** The command that makes the same key. */
export function wordsOf(
  slug: string,
  { name, uses, expires_in, groups, is_lighthouse, approved }: ReturnType<typeof bodyOf>,
): Words {
  return [
    "token",
    "create",
    slug,
    ...(name === undefined ? [] : ["--name", name]),
    ...groups.flatMap((group) => ["--group", group]),
    ...(uses === 1 ? [] : ["--uses", uses]),
    "--expires",
    expires_in,
    ...(is_lighthouse ? ["--lighthouse"] : []),
    ...(approved === true ? ["--approved"] : []),
  ];
}

/** A typed duration in words, or as it was typed. */
function lifeWords(typed: string): string {
  const seconds = parseDuration(typed);
  if (seconds === undefined) return typed;
  // inWords says "60 minutes".
  return seconds === 3600 ? "1 hour" : inWords(seconds * 1000);
}

type FormProps = {
  draft: Draft;
  setDraft(draft: Draft): void;
  isLighthouse: boolean;
  made(token: Token): void;
};

/** Fields that most users leave as they are, under their names in the API. A sentence says their values, and its words open them. */
const rare = ["uses", "expires_in", "name"] as const;

export function JoinKeyForm({ draft, setDraft, isLighthouse, made }: FormProps) {
  const slug = currentSlug.value ?? "";
  /** Which machines an administrator has to approve: `all`, those with a key that is not approved, or `none`. */
  const approval = useApproval(slug);
  const [isOpen, setOpen] = useState<Partial<Record<(typeof rare)[number] | "approved", boolean>>>({});
  const body = bodyOf(draft, { isLighthouse });
  const { error, isRunning, submit } = useAction(async () => {
    made(await call(registrationTokensApi.create, { slug }, body));
  });
  /** A word of the sentence, which opens or closes a field. */
  const word = (field: keyof typeof isOpen, words: string) => (
    <button
      type="button"
      class="plain as-link"
      aria-expanded={isOpen[field] === true}
      onClick={() => setOpen({ ...isOpen, [field]: isOpen[field] !== true })}
    >
      {words}
    </button>
  );
  /** A field, if it is open, or if its value was refused. */
  const field = (
    name: (typeof rare)[number],
    label: string,
    control: Readonly<Record<string, unknown>>,
    help?: string,
  ) =>
    isOpen[name] === true || error?.fields[name] !== undefined ? (
      <Text
        label={label}
        help={help}
        errors={error?.fields[name]}
        value={draft[name]}
        set={(text: string) => setDraft({ ...draft, [name]: text })}
        control={control}
      />
    ) : null;
  return (
    <form onSubmit={submit} class="w440">
      <GroupsField
        label="Groups"
        errors={sentencesOf(error?.fields, "groups", body.groups)}
        value={draft.groups}
        set={(groups) => setDraft({ ...draft, groups })}
      />
      {isLighthouse ? (
        <p class="quiet">The others find each other through it. Its UDP port must be open to all of them.</p>
      ) : null}
      <p class="mt8">
        For {word("uses", plural(Number(draft.uses), "node"))}, the key ends in{" "}
        {word("expires_in", lifeWords(draft.expires_in))}
        {approval === "unapproved" ? (
          <>
            , and {word("approved", draft.isApproved ? "nobody approves" : "an administrator approves")} each
          </>
        ) : approval === "all" ? (
          ", and an administrator approves each"
        ) : null}
        . It has{" "}
        {draft.name.trim() === "" ? word("name", "no name") : <>the name {word("name", draft.name)}</>}.
      </p>
      <div class="mt8">
        {field("uses", "How many nodes", {
          type: "number",
          min: 1,
          max: 1_000_000,
          required: true,
        })}
        {field("expires_in", "The join key is valid for", { required: true }, "Such as 1h, 48h or 7d.")}
        {isOpen.approved === true ? (
          <Check
            label="They need no approval: whoever has the join key can join at once"
            checked={draft.isApproved}
            set={(isApproved) => setDraft({ ...draft, isApproved })}
          />
        ) : null}
        {field("name", "Name of the join key", { maxlength: 100 }, "Optional.")}
      </div>
      <FormFailure error={error} shown={["groups", "uses", "expires_in", "name"]} />
      <p class="group mt8">
        <button class="primary" disabled={isRunning}>
          Make the join key
        </button>
        <kbd class="no-phone">Enter</kbd>
      </p>
    </form>
  );
}
