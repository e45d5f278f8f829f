"""What a report is of, what it cannot say, and the words that it uses."""

from __future__ import annotations

__all__ = ["GLOSSARY", "LIMITS", "TITLES"]

TITLES = {
    "files": "Does a released set give away whose records were used?",
    "release": "Does a release give away whose records were used?",
    "mechanism": "Do sets made in this way give away whose records were used?",
    "spm": "Does a training run give away whose records were used?",
    "canaries": "Are the noise and the masks of a run really there?",
    "selftest": "Do the attacks of this installation find what they must?",
}
_ONE_SET = (
    "One set was released, so who was used was not drawn by lot: the control named blind checks that members and "
    "others differ by nothing else.",
    "Distances are told to two digits, so that they do not identify a record.",
)
LIMITS = {
    "files": _ONE_SET,
    "release": _ONE_SET,
    "mechanism": (
        "It speaks of the way of making sets, on the average over random halves; one unlucky set may tell more.",
        "Sets were made at the size of this audit (network, steps, number of people); other sizes may tell more or "
        "less.",
    ),
    "spm": ("Training was repeated at the size of this audit; a longer run shares more.",),
    "canaries": (
        "A lower bound on epsilon is what these test contributions showed; it never shows that no more is lost.",
    ),
    "selftest": ("It checks this installation on made-up data, and says nothing of any release.",),
}
GLOSSARY = (
    ("member", "Somebody whose record was used to make what is audited."),
    ("other, non-member", "Somebody of the same population whose record was not used."),
    ("condensed image", "A made-up picture that is fitted so that training on it is like training on the records."),
    ("attack", "A rule that gives each record a score; a higher one says more likely a member."),
    ("primary attack", "The one that was chosen before the run to decide whether no leak was detected. Choosing the "
     "best one afterwards would find leaks where there are none."),
    ("area under the curve", "The chance that a member scores above somebody else: 0.5 for none, 1 for always."),
    ("true-positive rate at 0.01", "The share of members picked out while 1 of 100 others is wrongly picked."),
    ("interval, 95 %", "Ends that hold the true value in 95 of 100 audits of this kind."),
    ("p", "How likely a finding at least this strong is when nothing shows."),
    ("control", "A question with a known answer. An audit that answers it wrongly is INVALID."),
    ("matching residual", "How far class means of images and records are apart. The closer, the more they give away."),
    ("differential privacy, epsilon", "A promise, held by noise, that bounds what any attack can learn of one record: "
     "the smaller epsilon, the less."),
    ("LEAK", "Members can be picked out, beyond what was accepted."),
    ("NO-LEAK-DETECTED", "With so many people these attacks would have seen a leak of the stated size, and saw none."),
    ("INCONCLUSIVE", "Too few people, or a result too near to what is accepted."),
    ("INVALID", "The audit failed a control or was given what cannot be audited."),
    ("CONTRADICTS-ACCOUNTING", "An attack showed more than the accounted differential privacy allows."),
    ("SHA-256", "A fingerprint of a file or plan: another content has another one."),
)  # fmt: skip
