#!/usr/bin/env python3
"""Verifies a castellan ledger export. Standard library only; written from
docs/ledger-format.md, not from the Go program.

usage: verify.py --key KEY [--key KEY ...] [--head FILE ...] EXPORT [EXPORT ...]

KEY is castellan/<store>/<tree>+<id>+<base64> or base64 of the 32 bytes.
Prints {"ok","size","broken":{"tree","index","reason"},"head"} for each; exit
code 0 when all are whole, 1 when one is broken, 2 when one cannot be judged.
"""
import base64
import hashlib
import json
import sys

# --- Ed25519 (RFC 8032), verification only -------------------------------

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
SQRT_M1 = pow(2, (P - 1) // 4, P)


def add(a, b):
    A = (a[1] - a[0]) * (b[1] - b[0]) % P
    B = (a[1] + a[0]) * (b[1] + b[0]) % P
    C = 2 * a[3] * b[3] * D % P
    E = 2 * a[2] * b[2] % P
    e, f, g, h = B - A, E - C, E + C, B + A
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def mul(n, p):
    q = (0, 1, 1, 0)
    while n:
        if n & 1:
            q = add(q, p)
        p = add(p, p)
        n >>= 1
    return q


def point(b):
    y = int.from_bytes(b, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    if y >= P:
        return None
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * SQRT_M1 % P
    if (x * x - x2) % P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return (x, y, 1, x * y % P)


def base():
    y = 4 * pow(5, P - 2, P) % P
    return point(y.to_bytes(32, "little"))


def ed25519(key, msg, sig):
    a, r, s = point(key), point(sig[:32]), int.from_bytes(sig[32:], "little")
    if a is None or r is None or s >= L:
        return False
    k = int.from_bytes(hashlib.sha512(sig[:32] + key + msg).digest(), "little") % L
    left, right = mul(s, base()), add(r, mul(k, a))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 and (left[1] * right[2] - right[1] * left[2]) % P == 0


# --- canonical JSON ---------------------------------------------------------

class Bad(Exception):
    pass


def pairs(items):
    d = {}
    for k, v in items:
        if k in d:
            raise Bad("key twice")
        d[k] = v
    return dict(sorted(d.items(), key=lambda kv: kv[0].encode("utf-16-be", "surrogatepass")))


def no_float(_):
    raise Bad("not an integer")


def canonical(text):
    """Parses canonical JSON of an object; anything else raises Bad."""
    try:
        v = json.loads(text, object_pairs_hook=pairs, parse_float=no_float, parse_constant=no_float)
        if json.dumps(v, ensure_ascii=False, separators=(",", ":")) != text or not isinstance(v, dict):
            raise Bad("not canonical")
        small(v)
        return v
    except (ValueError, RecursionError) as e:
        raise Bad(str(e))


def small(v):
    if isinstance(v, int) and abs(v) > 2**53 - 1:
        raise Bad("integer too large")
    for x in v.values() if isinstance(v, dict) else v if isinstance(v, list) else ():
        small(x)


def b64(s, n=None):
    try:
        b = base64.b64decode(s, validate=True)
    except (ValueError, TypeError):
        raise Bad("not base64")
    if base64.b64encode(b).decode() != s or (n is not None and len(b) != n):
        raise Bad("not base64 of %s bytes" % n)
    return b


# --- checkpoints ---------------------------------------------------------------

def key_id(name, key):
    return hashlib.sha256(name.encode() + b"\n\x01" + key).digest()[:4]


def store_tree(origin):
    p = origin.split("/")
    if len(p) != 3 or p[0] != "castellan" or p[2] not in ("write", "read"):
        raise Bad("origin")
    if not 1 <= len(p[1]) <= 64 or any(c not in "abcdefghijklmnopqrstuvwxyz0123456789-" for c in p[1]):
        raise Bad("origin")
    return p[1], p[2]


def checkpoint(note):
    """Returns origin, size, root, text, [(name, id, signature)]."""
    text, _, sigs = note.partition("\n\n")
    lines = text.split("\n")
    if len(lines) == 4 and lines[3] == "":
        lines = lines[:3]  # unsigned
    if len(lines) != 3:
        raise Bad("checkpoint has not three lines")
    store_tree(lines[0])
    if not lines[1].isascii() or not lines[1].isdigit() or str(int(lines[1])) != lines[1]:
        raise Bad("size")
    found = []
    for line in sigs.split("\n"):
        part = line.split(" ")
        if len(part) == 3 and part[0] == "\u2014":
            try:
                b = b64(part[2])
            except Bad:
                continue
            if len(b) == 68:
                found.append((part[1], b[:4], b[4:]))
    return lines[0], int(lines[1]), b64(lines[2], 32), "\n".join(lines) + "\n", found


def signed(note, keys):
    try:
        _, _, _, text, sigs = checkpoint(note)
    except Bad:
        return False
    return any(key_id(name, k) == i and ed25519(k, text.encode(), s) for name, i, s in sigs for k in keys)


# --- Merkle tree ------------------------------------------------------------

def leaf_hash(header):
    return hashlib.sha256(b"\x00" + header).digest()


class Tree:
    def __init__(self):
        self.size, self.nodes = 0, []

    def add(self, leaf):
        n, h = self.size, leaf
        while n & 1:
            h = hashlib.sha256(b"\x01" + self.nodes.pop() + h).digest()
            n >>= 1
        self.nodes.append(h)
        self.size += 1

    def root(self):
        if not self.nodes:
            return hashlib.sha256(b"").digest()
        h = self.nodes[-1]
        for left in reversed(self.nodes[:-1]):
            h = hashlib.sha256(b"\x01" + left + h).digest()
        return h


# --- the walk -----------------------------------------------------------------

FIELDS = {"actor", "client", "data", "effect", "kind", "op", "parts", "plan", "seq", "status", "target", "tree", "ts", "v"}


def parse_header(text):
    h = canonical(text)
    if set(h) - FIELDS or h.get("v") != 1 or h.get("tree") not in ("write", "read") or "kind" not in h:
        raise Bad("header")
    if type(h.get("seq")) is not int or h["seq"] < 0 or not isinstance(h.get("ts"), str) or len(h["ts"].encode()) != 27:
        raise Bad("header")
    for k, v in h.items():
        if k == "data" and not isinstance(v, dict) or k not in ("data", "parts", "seq", "v") and (not isinstance(v, str) or not v):
            raise Bad("header field " + k)
    for name, c in h.get("parts", {}).items():
        if len(c) != 64 or bytes.fromhex(c).hex() != c:
            raise Bad("commitment")
    return h


class Walk:
    def __init__(self, judge, name, head):
        self.j, self.name, self.head = judge, name, head
        self.tree, self.next, self.count = Tree(), 0, 0
        self.torn, self.suspect, self.last_sig = False, None, 0
        self.absent, self.sigs, self.pins, self.at_head = [], [], {}, None
        self.head_size, self.head_root, self.origin = 0, Tree().root(), None
        try:
            self.origin, self.head_size, self.head_root, _, _ = checkpoint(head)
            judge.store = judge.store or store_tree(self.origin)[0]
        except Bad:
            pass

    def mark(self):
        if self.torn:
            return
        root = self.tree.root()
        self.pins.setdefault(self.tree.size, root)
        if self.tree.size == self.head_size:
            self.at_head = root

    def doubt(self, index, why, **more):
        if self.suspect is None:
            self.suspect = dict(index=index, first=index, seq=-1, fault=None, sig=None, moved=-1, twin=-1, why=why)
            self.suspect.update(more)

    def unreadable(self, why):
        self.mark()
        self.doubt(self.next, why, fault="edit")
        self.torn = True

    def record(self, line):
        self.mark()
        before, i, seq = self.suspect, line["index"], -1
        if i < self.next:
            if self.suspect and self.suspect["fault"] == "removal" and self.suspect["index"] == i:
                self.suspect.update(fault="reorder", why="it comes after record %d" % (self.next - 1))
            self.doubt(i, "impossible index", fault="insertion")
            self.torn = True
            return
        if i > self.next:
            self.doubt(self.next, "record is missing", fault="removal")
            self.torn, self.next = True, i
        self.next = self.count = i + 1
        h = None
        if "leaf" in line:
            leaf = b64(line["leaf"], 32)
            self.absent.append(i)
        else:
            leaf = leaf_hash(line["header"].encode())
            try:
                h = parse_header(line["header"])
                seq = h["seq"]
                if seq != i:
                    self.doubt(i, "was written as number %d" % seq, seq=seq)
                elif h["tree"] != self.name:
                    self.doubt(i, "is of the other tree", seq=seq, fault="insertion")
                elif self.name == "write":
                    self.j.control(h)
            except (Bad, ValueError, TypeError, AttributeError):
                self.doubt(i, "unreadable", fault="edit")
        if not self.torn:
            self.tree.add(leaf)
            if "sig" in line:
                self.signature(i, seq, b64(line["sig"]))
        if h is not None:
            have = line.get("parts", {})
            for name, p in have.items():
                if name not in h.get("parts", {}):
                    if p != "withheld":
                        self.doubt(i, "has no part " + name, seq=seq, fault="edit")
                elif p != "withheld":
                    body = p["text"].encode() if "text" in p else b64(p["base64"])
                    if hashlib.sha256(b64(p["salt"], 32) + body).hexdigest() != h["parts"][name]:
                        self.doubt(i, "part %s differs" % name, seq=seq, fault="edit")
        if before is not None and seq >= 0:
            if seq == before["index"] and i != before["index"] and before["moved"] < 0:
                before["moved"] = i
            if seq == before["seq"] and before["twin"] < 0:
                before["twin"] = i

    def signature(self, i, seq, b):
        root, sig = b[:32], (b[32:36], b[36:])
        if len(b) == 100 and root == self.tree.root():
            if self.suspect is None:
                self.last_sig = self.tree.size
                self.sigs.append((self.tree.size, root, sig))
            return
        self.doubt(i, "signed head differs", seq=seq, sig=(root, sig if len(b) == 100 else None), last=self.last_sig)

    def genuine(self, size, root, sig):
        if not sig or size < 0:
            return False
        name = "castellan/%s/%s" % (self.j.store, self.name)
        text = "%s\n%d\n%s\n" % (name, size, base64.b64encode(root).decode())
        return any(key_id(name, k) == sig[0] and ed25519(k, text.encode(), sig[1]) for k in self.j.keys)

    def last_good(self):
        for size, root, sig in reversed(self.sigs):
            if self.genuine(size, root, sig):
                return size
        return 0

    def settle(self):
        s = self.suspect
        if not s or not s["sig"]:
            return
        (root, sig), moved = s["sig"], self.head_size - self.count
        if self.genuine(s["index"] + 1, root, sig):
            s["first"] = s["last"]
        elif moved and self.genuine(s["index"] + 1 + moved, root, sig):
            s["first"], s["fault"] = s["last"], "removal" if moved > 0 else "insertion"

    def head_fault(self):
        """(index, reason, is about another store) or None"""
        if self.head == "":
            return None
        try:
            origin = checkpoint(self.head)[0]
        except Bad:
            return (-1, "forged append: the signed head is unreadable", False)
        store, tree = store_tree(origin)
        if tree != self.name or store != self.j.store:
            return (-1, "replacement: the head is of another log", True)
        if not signed(self.head, [k for k in self.j.keys if k not in self.j.retired]):
            return (-1, "wrong key: the head is not signed by a trusted key", False)
        return None

    def finish(self):
        """None, or (index, reason)"""
        self.mark()
        self.settle()
        fault, s = self.head_fault(), self.suspect
        if not fault and not self.torn and self.tree.size == self.head_size and self.tree.root() == self.head_root:
            if s:
                return (s["index"], "edit: " + s["why"])
            below = self.j.below.get(self.name, 0)
            for i in self.absent:
                if i >= below:
                    return (i, "removal: no sweep is recorded that removed it")
            if len(self.absent) > self.j.dropped.get(self.name, 0):
                return (-1, "removal: more records are absent than sweeps removed")
            return self.pin_fault()
        if s and (fault or s["first"] < self.head_size or self.head_size == 0):
            if fault and (fault[2] or self.last_good() == 0 and fault[1].startswith("wrong key") and self.last_sig > 0):
                return fault[:2]
            return self.blame()
        if fault:
            good = self.last_good() if not fault[2] else 0
            if 0 < good < self.count:
                return (good, "forged append: " + fault[1])
            return fault[:2]
        if self.count < self.head_size:
            return (self.count, "truncation: the log ends early")
        if self.at_head == self.head_root and self.count > self.head_size:
            kind = "rewind" if self.last_good() > self.head_size else "forged append"
            return (self.head_size, kind + ": records are beyond the signed head")
        return (self.last_good(), "edit: records from here on are not those that were signed")

    def blame(self):
        s = self.suspect
        i, seq, moved, twin = s["index"], s["seq"], s["moved"], s["twin"]
        if seq >= 0 and seq != i:
            if seq == i - 1 and seq >= self.last_sig:
                return (seq, "insertion: from the next record on all stand one place too far")
            if moved >= 0 and (twin >= 0 or seq < i):
                return (i, "insertion: a copy of record %d" % seq)
            if moved >= 0:
                return (i, "reorder: it stands at place %d" % moved)
            if seq > i and twin < 0:
                return (i, "removal: here stands number %d" % seq)
            return (i, "edit: replaced by number %d" % seq)
        if s["fault"] == "removal" and moved >= 0:
            return (i, "reorder: it stands at place %d" % moved)
        if s["fault"]:
            return (s["first"], s["fault"] + ": " + s["why"])
        if moved >= 0:
            return (i, "insertion: the one of that number stands at %d" % moved)
        return (s["first"], "edit: " + s["why"])

    def pin_fault(self):
        for note in self.j.heads:
            origin, size, root, _, _ = checkpoint(note)
            store, tree = store_tree(origin)
            if tree != self.name:
                continue
            if self.j.store and store != self.j.store:
                return (-1, "replacement: the given head is of another store")
            if "\n\n" in note and not signed(note, self.j.keys):
                return (-1, "wrong key: the given head is not signed by a trusted key")
            if size > self.tree.size:
                return (self.tree.size, "truncation: the given head covers %d records (or rewind)" % size)
            if self.pins.get(size) != root:
                return (-1, "replacement: the log does not contain the given head (or rewind)")
        return None


class Judge:
    def __init__(self, keys, heads):
        self.keys, self.heads = list(keys), heads
        self.retired, self.pending, self.store = [], [], None
        self.below, self.dropped = {}, {}

    def control(self, h):
        d = h.get("data", {})
        if h["kind"] == "ledger.sweep" and d.get("tree") in ("write", "read"):
            below, n = (x if type(x) is int and x >= 0 else 0 for x in (d.get("records_below"), d.get("records_dropped")))
            if d["tree"] != h["tree"] or below <= h["seq"]:
                self.below[d["tree"]] = max(self.below.get(d["tree"], 0), below)
                self.dropped[d["tree"]] = self.dropped.get(d["tree"], 0) + n
        if h["kind"] == "ledger.key":
            try:
                old, new = b64(d["old"], 32), b64(d["new"], 32)
                text = "castellan ledger key rotation\n%s\n%s\n%s\n" % (d["store"], d["old"], d["new"])
                ok = ed25519(old, text.encode(), b64(d["old_sig"], 64)) and ed25519(new, text.encode(), b64(d["new_sig"], 64))
            except (Bad, KeyError):
                return
            if ok and old != new:
                self.pending.append((old, new))
            for _ in range(len(self.pending)):
                for old, new in self.pending:
                    if old in self.keys or new in self.keys:
                        self.keys += [k for k in (old, new) if k not in self.keys]
                        self.retired.append(old)
                self.pending = [p for p in self.pending if p[0] not in self.keys]


KEYS = {"type", "version", "store", "exported", "trees", "tree", "head", "index", "sig", "header", "leaf", "parts"}


def check_record(o):
    if type(o.get("index")) is not int or ("header" in o) == ("leaf" in o) or "leaf" in o and "parts" in o:
        raise Bad("record")
    if "leaf" in o:
        b64(o["leaf"], 32)
    if "sig" in o:
        b64(o["sig"])
    for p in o.get("parts", {}).values():
        if p != "withheld":
            if set(p) not in ({"salt", "text"}, {"salt", "base64"}):
                raise Bad("part")
            b64(p["salt"], 32)
            if "base64" in p:
                b64(p["base64"])


def main(argv):
    keys, heads, paths = [], [], []
    args = iter(argv)
    for a in args:
        if a == "--key":
            k = next(args)
            keys.append(b64(k.split("+", 2)[2], 33)[1:] if k.startswith("castellan/") else b64(k, 32))
        elif a == "--head":
            heads.append(open(next(args), encoding="utf-8").read().strip() + "\n")
        else:
            paths.append(a)
    if not keys or not paths:
        sys.exit(__doc__)
    return max([verify(path, keys, heads) for path in paths])


def verify(path, keys, heads):
    judge, walks, walk, ended = Judge(keys, heads), [], None, False
    announced, store = [], None
    with open(path, "rb") as f:
        for n, raw in enumerate(f, 1):
            o = None
            try:
                if not raw.endswith(b"\n"):
                    raise Bad("cut off")
                o = canonical(raw[:-1].decode("utf-8"))
                if set(o) - KEYS:
                    raise Bad("foreign key")
            except (Bad, ValueError):
                pass
            if n == 1:
                if not o or o.get("type") != "castellan ledger export" or o.get("version") != 1:
                    sys.exit("not an export of version 1")
                announced, judge.store = o["trees"], o["store"]
                continue
            if ended:
                walk.unreadable("the export goes on after its end")
                break
            if o and o.get("type") == "end":
                ended = True
            elif o and o.get("type") == "tree" and o.get("tree") in ("write", "read") and "head" in o and all(w.name != o["tree"] for w in walks):
                walk = Walk(judge, o["tree"], o["head"])
                walks.append(walk)
            elif walk is None:
                sys.exit("line %d: no tree is named" % n)
            else:
                try:
                    if not o or o.get("type") != "record":
                        raise Bad("not a form of the export")
                    check_record(o)
                    walk.record(o)
                except (Bad, KeyError, TypeError, AttributeError) as e:
                    walk.unreadable("line %d: %s" % (n, e))
    if walk is None:
        sys.exit("no tree")
    if any(t not in [w.name for w in walks] for t in announced):
        walk.unreadable("an announced tree is missing")
    if not ended:
        walk.unreadable("the export ends early")
    result = {"ok": True, "size": 0, "broken": None, "head": ""}
    for w in walks:
        if w.name == "write":
            result["size"], result["head"] = w.count, w.head
        bad = w.finish()
        if bad and result["ok"]:
            result["ok"], result["broken"] = False, {"tree": w.name, "index": bad[0], "reason": bad[1]}
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SystemExit as e:
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
            sys.exit(2)
        raise
