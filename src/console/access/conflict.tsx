// Another user or tab saved rules since the edits of this tab began: both are shown, with who saved and when.

import { apiPath } from "../../api/endpoint.ts";
import { eventsApi } from "../../api/events.ts";
import type { ComponentChild } from "preact";
import { useState } from "preact/hooks";
import { actorOf, isAbout } from "../activity/actor.ts";
import { me } from "../contact/me.ts";
import { useMemberNames } from "../activity/member-names.ts";
import { useResource } from "../contact/resource.ts";
import { Button } from "../ui/button.tsx";
import { Why } from "../ui/page.tsx";
import { When } from "../ui/parts.tsx";
import type { Draft } from "./draft-state.ts";
import { rebase, takeTheirs } from "./draft.ts";
import type { Saved } from "./saved.ts";
import { ruleChanges, clashKey, mergeRules, type Choice, type Change, type Clash } from "./merge.ts";
import { identityOf, sentenceOf, type Rule } from "./rules.ts";
import { Description, Sentence } from "./sentence.tsx";

type Props = { draft: Draft; saved: Saved; theirs: Saved };
/** `at`: when, RFC 3339. */
type Author = { name: string; at: string };

/** Both versions of each rule that was changed here and by others; the user chooses one. */
export function Conflict({ draft, saved, theirs }: Props) {
  const [choices, setChoices] = useState<ReadonlyMap<string, Choice>>(new Map());
  const mine = draft.rules.value ?? saved.rules;
  const changes = ruleChanges(saved.rules, theirs.rules);
  const { clashes } = mergeRules(saved.rules, mine, theirs.rules);
  const authorOf = useAuthors(draft.slug);
  const undecided = clashes.filter((clash) => !choices.has(clashKey(clash)));
  return (
    <div role="alert">
      <Why
        title={
          <>
            <Authors changes={changes} authorOf={authorOf} did="saved rules since these edits began" />, so
            they are not saved.
          </>
        }
        actions={
          <>
            <Button kind="tint" disabled={undecided.length > 0} onClick={() => rebase(draft, choices)}>
              Add my changes to the saved rules
            </Button>
            <Button onClick={() => takeTheirs(draft)}>Keep the saved rules, drop my changes</Button>
          </>
        }
      >
        <div class="versions">
          <div>
            <h3>Saved</h3>
            <ChangeList changes={changes} />
          </div>
          <div>
            <h3>Yours</h3>
            <ChangeList changes={ruleChanges(saved.rules, mine)} />
          </div>
        </div>
        {clashes.map((clash) => (
          <Chooser
            key={clashKey(clash)}
            clash={clash}
            author={authorOf(clash.theirs ?? clash.base)}
            choice={choices.get(clashKey(clash))}
            choose={(choice: Choice) => setChoices(new Map([...choices, [clashKey(clash), choice]]))}
          />
        ))}
        {undecided.length === 0 ? null : (
          <p class="quiet">Choose first, for each rule that was changed twice.</p>
        )}
      </Why>
    </div>
  );
}

/** What others saved while this page had no edits. */
export function News({ slug, changes }: { slug: string; changes: readonly Change[] }) {
  return changes.length === 0 ? null : <SavedByOthers slug={slug} changes={changes} />;
}

/** Apart from `News`, because it reads the log. */
function SavedByOthers({ slug, changes }: { slug: string; changes: readonly Change[] }) {
  const authorOf = useAuthors(slug);
  return (
    <div role="status">
      <Why
        kind="info"
        icon="people"
        title={
          <>
            <Authors changes={changes} authorOf={authorOf} did="saved rules while this page was open" />:
          </>
        }
      >
        <ChangeList changes={changes} />
      </Why>
    </div>
  );
}

type AuthorOf = (rule: Rule | undefined) => Author | undefined;

type AuthorsProps = { changes: readonly Change[]; authorOf: AuthorOf; did: string };

/** "ada@example.org saved rules …", with the time of the last change. `did`: what follows the names. */
function Authors({ changes, authorOf, did }: AuthorsProps) {
  const authors = changes.flatMap(({ before, after }) => authorOf(after ?? before) ?? []);
  const names = [...new Set(authors.map(({ name }) => name))].join(", ");
  // Times are RFC 3339 in UTC, so their order is that of texts.
  const last = authors
    .map(({ at }) => at)
    .sort()
    .at(-1);
  return (
    <>
      <bdi>{names || "Another user or tab"}</bdi>
      {names.endsWith("in another tab") ? "," : ""} {did}
      {last === undefined ? null : (
        <>
          {" "}
          (<When at={last} />)
        </>
      )}
    </>
  );
}

/** Who saved a rule: the author of the newest event about it. Undefined if the last 200 events have none. */
function useAuthors(slug: string): AuthorOf {
  // Without `before`, the list begins with the oldest event.
  const { data = [] } = useResource(
    apiPath(eventsApi.list, { slug }, { before: "999999999999999", limit: "200" }),
  );
  const names = useMemberNames(slug);
  return (rule) => {
    const about = data.filter((each) => isAbout(each, `rule/${rule?.id}`));
    const event = about.toSorted((a, b) => b.id - a.id)[0];
    if (event === undefined) return undefined;
    // Without the IP address, which actorOf would add to the name.
    const name = actorOf({ ...event, actor: { ...event.actor, ip: null } }, names);
    return { name: name === me.value?.email ? "You, in another tab" : name, at: event.at };
  };
}

type ChooserProps = {
  clash: Clash;
  author: Author | undefined;
  choice: Choice | undefined;
  choose: (choice: Choice) => void;
};

function Chooser({ clash: { base, mine, theirs }, author, choice, choose }: ChooserProps) {
  const option = (value: Choice, rule: Rule | undefined, title: ComponentChild) => (
    <label class="check">
      <input
        type="radio"
        name={`clash-${base.id}`}
        checked={choice === value}
        onChange={() => choose(value)}
      />
      <span>
        {title}: <Version rule={rule} />
      </span>
    </label>
  );
  return (
    <fieldset>
      <legend>Rule {base.id} was changed there and here. Which version is to hold?</legend>
      <p class="quiet">
        It was: <Version rule={base} />
      </p>
      {option(
        "theirs",
        theirs,
        author === undefined ? (
          "Saved"
        ) : (
          <>
            Saved (<bdi>{author.name}</bdi>, <When at={author.at} />)
          </>
        ),
      )}
      {option("mine", mine, "Yours")}
      {mine === undefined || theirs === undefined || identityOf(mine) === identityOf(theirs)
        ? null
        : option("both", mine, "Both: the saved one, and yours as a new rule")}
    </fieldset>
  );
}

/** One version of a rule, with its description. */
function Version({ rule }: { rule: Rule | undefined }) {
  if (rule === undefined) return <strong>deleted</strong>;
  return (
    <>
      <Sentence rule={rule} />
      {rule.description === "" ? null : (
        <>
          {" "}
          (<bdi>{rule.description}</bdi>)
        </>
      )}
    </>
  );
}

function ChangeList({ changes }: { changes: readonly Change[] }) {
  return (
    <ul class="effects">
      {changes.map(({ before, after }) => (
        <li key={`${before?.id} ${after?.id}`} class="wraps">
          <span>
            <ChangeLines before={before} after={after} />
          </span>
        </li>
      ))}
    </ul>
  );
}

/** The rule before and after a change. If only the description differs, the sentence is shown once. */
function ChangeLines({ before, after }: Change) {
  // A rule that is not saved yet has an id below 0, which is not shown.
  const number = before !== undefined && before.id > 0 ? `Rule ${before.id}: ` : "";
  if (before === undefined || after === undefined || sentenceOf(before) !== sentenceOf(after))
    return (
      <>
        {number}{" "}
        {before === undefined ? null : (
          <del>
            − <Version rule={before} />
          </del>
        )}
        {after === undefined ? null : (
          <ins>
            + <Version rule={after} />
          </ins>
        )}
      </>
    );
  return (
    <>
      {number}
      <Sentence rule={after} />, description <Description before={before} after={after} />
    </>
  );
}
