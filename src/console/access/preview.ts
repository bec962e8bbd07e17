// Before saving: the machines that gain and lose access, the tests, and what another user saved meanwhile.

import { useState } from "preact/hooks";
import { actorOf } from "../actor.ts";
import type { ApiError } from "../api.ts";
import { html } from "../html.ts";
import { useMemberNames } from "../member-names.ts";
import { Confirm, Failure, When } from "../ui/parts.ts";
import { discard, maySave, rebase, save, takeTheirs, type Draft, type Plan, type Saved } from "./draft.ts";
import { clashesOf, faultLines, identityOf, type Rule } from "./rules.ts";
import { Sentence } from "./rule-table.ts";

type PreviewProps = { draft: Draft; saved: Saved };

export function Preview({ draft, saved }: PreviewProps) {
  const { rules, error, isSaved } = draft;
  // A save that failed has kept its edits; without edits, only reading can have failed.
  const isFailed = rules.value === undefined && error.value !== undefined;
  return html`<div role="status" class=${isSaved.value ? "saved" : ""}>${isSaved.value ? "Saved." : ""}</div>
    ${isFailed ? html`<${Failure} error=${error.value} />` : null}
    ${rules.value === undefined ? null : html`<${Unsaved} draft=${draft} saved=${saved} />`}`;
}

function Unsaved({ draft, saved }: PreviewProps) {
  const { plan, theirs, error, isSaving } = draft;
  const [isDiscarding, askToDiscard] = useState(false);
  return html`<section class="preview" aria-labelledby="preview">
    <h2 id="preview">Before you save</h2>
    <div aria-live="polite">
      ${theirs.value === undefined ? null : html`<${Conflict} draft=${draft} saved=${saved} theirs=${theirs.value} />`}
      ${error.value === undefined ? null : html`<${Refusal} rules=${draft.rules.value ?? []} error=${error.value} />`}
      ${
        plan.value === undefined
          ? error.value === undefined
            ? html`<p class="quiet">Working out what changes.</p>`
            : null
          : html`<${Effects} plan=${plan.value} /><${Tests} plan=${plan.value} />`
      }
    </div>
    <div class="actions">
      <button type="button" class="primary" disabled=${!maySave(draft)} onClick=${() => void save(draft)}>
        ${isSaving.value ? "Saving…" : "Save the rules"}
      </button>
      <button type="button" disabled=${isSaving.value} onClick=${() => askToDiscard(true)}>
        Discard the changes
      </button>
    </div>
    ${
      isDiscarding
        ? html`<${Confirm}
            title="Discard the changes?"
            action="Discard them"
            effect=${html`<p>The rules stay as they are saved. What you edited since cannot be brought back.</p>`}
            run=${async () => discard(draft)}
            close=${() => askToDiscard(false)}
          />`
        : null
    }
  </section>`;
}

/** The control plane names lines of the file that the page sent. The user has not seen that file: the page names rules. */
function Refusal({ rules, error }: { rules: readonly Rule[]; error: ApiError }) {
  const sentences = error.fields["policy"] ?? [];
  if (sentences.length === 0) return html`<${Failure} error=${error} />`;
  return html`<div class="failure" role="alert">
    <p>The rules cannot be saved:</p>
    <ul>
      ${faultLines(rules, sentences).map((line) => html`<li key=${line}><bdi>${line}</bdi></li>`)}
    </ul>
  </div>`;
}

function Effects({ plan: { access } }: { plan: Plan }) {
  if (access.pairs_changed === 0) return html`<p>No machine gains or loses access.</p>`;
  return html`<p>
      ${access.pairs_changed === 1 ? "1 pair of machines changes:" : `${access.pairs_changed} pairs of machines change:`}
    </p>
    <ul class="plain-list effects">
      ${access.classes.map(
        ({ from, to, owners = "any", gains, loses }, at) =>
          html`<li key=${at}>
            <bdi>${classWords(from)}</bdi> → <bdi>${classWords(to)}</bdi>${" "}
            ${owners === "any" ? null : `(${owners === "same" ? "with the same owner" : "with different owners"}) `}
            ${gains.length === 0 ? null : html`<ins>gains ${gains.join(", ")}</ins> `}
            ${loses.length === 0 ? null : html`<del>loses ${loses.join(", ")}</del>`}
          </li>`,
      )}
    </ul>
    ${access.classes_left_out === 0 ? null : html`<p>And ${access.classes_left_out} more kinds of machines.</p>`}
    <details>
      <summary>
        Each pair${access.pairs.length < access.pairs_changed ? `, the first ${access.pairs.length}` : ""}
      </summary>
      <ul class="plain-list effects">
        ${access.pairs.map(
          ({ from, to, gains, loses }) =>
            html`<li key=${`${from.id} ${to.id}`}>
              <bdi>${from.name}</bdi> → <bdi>${to.name}</bdi>${" "}
              ${gains.length === 0 ? null : html`<ins>gains ${gains.join(", ")}</ins> `}
              ${loses.length === 0 ? null : html`<del>loses ${loses.join(", ")}</del>`}
            </li>`,
        )}
      </ul>
    </details>`;
}

function classWords({ groups, nodes, count }: Plan["access"]["classes"][number]["from"]): string {
  const left = count - nodes.length;
  const names = nodes.join(", ") + (left > 0 ? ` and ${left} more` : "");
  if (count === 1) return names;
  return `${count} machines in ${groups.length === 0 ? "no group" : groups.join(" and ")} (${names})`;
}

function Tests({ plan: { tests } }: { plan: Plan }) {
  const { after, failing } = tests;
  if (after === 0) return html`<p class="quiet">No tests are saved.</p>`;
  if (failing.length === 0)
    return html`<p class="good">
      ${after === 1 ? "The saved test passes." : `All ${after} saved tests pass.`}
    </p>`;
  const counts = `${after - failing.length} saved tests pass, ${failing.length} ${failing.length === 1 ? "fails" : "fail"}.`;
  return html`<div class="failure" role="alert">
    <p>${counts} Rules that fail a test cannot be saved.</p>
    <ul>
      ${failing.map((sentence) => html`<li key=${sentence}><bdi>${sentence}</bdi></li>`)}
    </ul>
  </div>`;
}

type ConflictProps = { draft: Draft; saved: Saved; theirs: Saved };

function Conflict({ draft, saved, theirs }: ConflictProps) {
  const mine = draft.rules.value ?? saved.rules;
  const { changed, gone } = clashesOf(saved.rules, mine, theirs.rules);
  const change = draft.lastChange.value;
  const names = useMemberNames(draft.slug);
  return html`<div class="failure" role="alert">
    <p>
      <bdi>${change === undefined ? "Another user" : actorOf(change, names)}</bdi> saved
      rules${change === undefined ? null : html` <${When} at=${change.at} />`}, since you began. Yours are not
      saved.
    </p>
    ${changed.map((rule) => html`<p key=${rule.id}><strong>Both of you edited rule ${rule.id}.</strong> Your edit is put on theirs; where you changed the same part, yours counts.</p>`)}
    ${gone.map((rule) => html`<p key=${rule.id}><strong>Rule ${rule.id}, which you edited, is gone or was replaced.</strong> Your edit of it would be added as a new rule beside theirs.</p>`)}
    <div class="versions">
      <div>
        <h3>Saved by others (version ${theirs.policy.version})</h3>
        <${EditList} base=${saved.rules} rules=${theirs.rules} />
      </div>
      <div>
        <h3>Yours (from version ${saved.policy.version})</h3>
        <${EditList} base=${saved.rules} rules=${mine} />
      </div>
    </div>
    <div class="actions">
      <button type="button" onClick=${() => rebase(draft)}>Put my changes on theirs</button>
      <button type="button" onClick=${() => takeTheirs(draft)}>Take theirs, drop mine</button>
    </div>
  </div>`;
}

function EditList({ base, rules }: { base: readonly Rule[]; rules: readonly Rule[] }) {
  const after = new Map(rules.map((rule) => [rule.id, rule]));
  const known = new Set(base.map(({ id }) => id));
  return html`<ul class="plain-list">
    ${base.map((was) => {
      const now = after.get(was.id);
      if (now === undefined)
        return html`<li key=${was.id}>
          <del>− <${Sentence} rule=${was} /></del>
        </li>`;
      return html`<${EditOf} key=${was.id} was=${was} now=${now} />`;
    })}
    ${rules
      .filter(({ id }) => !known.has(id))
      .map(
        (rule) =>
          html`<li key=${rule.id}>
            <ins>+ <${Sentence} rule=${rule} /></ins>
          </li>`,
      )}
  </ul>`;
}

function EditOf({ was, now }: { was: Rule; now: Rule }) {
  const isOther = identityOf(was) !== identityOf(now);
  if (!isOther && was.description === now.description) return null;
  return html`<li>
    No. ${was.id}:${" "}
    ${
      isOther
        ? html`<del>− <${Sentence} rule=${was} /></del> <ins>+ <${Sentence} rule=${now} /></ins>`
        : html`<${Sentence} rule=${now} />`
    }
    ${
      was.description === now.description
        ? null
        : html`, description
          ${
            was.description === ""
              ? null
              : html`<del><bdi>${was.description}</bdi></del
                  >${" "}`
          }
          ${now.description === "" ? "removed" : html`<ins><bdi>${now.description}</bdi></ins>`}`
    }
  </li>`;
}
