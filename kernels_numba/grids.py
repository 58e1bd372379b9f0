"""Codebooks of the IQ formats: constants of the file formats, kept as sets of points. Knows no block layout.

A book is an ascending list of points, each a few digits of a small alphabet, lowest digit first in the number that orders
them. So it is stored as one bit for each number that could be a point: 1 where it is one (bits low first, base85).
In the two books of 8 three-valued digits every point has an even number of middle digits, and only such numbers get a bit.
"""

from __future__ import annotations

import base64
import functools

import numpy as np
from numpy.typing import NDArray

IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_IQ2_ALPHABET = (8, 25, 43)
_IQ3_ALPHABET = (4, 12, 20, 28, 36, 44, 52, 62)
_IQ3_S_ALPHABET = (1, 3, 5, 7, 9, 11, 13, 15)
_IQ2_XS = (
    "|KGoP8~)FmGy&d(DG&ktn|EOXya^K`0GL1nfB^VYCP9EW0Rn&o5Fh~nK;hrKi4)*Wm;k}R1qcuTz?-l^0)Pn+004j>00961Gav{c00jU50ssI22mk>8gb5HJOn?Lg00a"
    ";KAOM<x0RR99073vj5D)+W0F)sB0R#d706-7`K>z?6z`yxZCcv980Sbs27ytl(w_ySV0TUzu00<F)1ONagKoJ1|LI4Q}00;m8006v66CePX0s{a52mk~C05~B6gaDBM0"
    "DuGlKmb4hA_#~800BT400000000Pp2@pgOzyJUM000040ssMl00000AV2{CKmY&$000C401yBGAOHXWAOJuF0C*E8zyN#!LIMB~AOL^?X$}Mk2p|9u000Oe0003%0s;^"
    "QAOZjY0000203<>aAP^7$0R#X60000WfB*^rNdN!<KmY&+000310000W000625C8xG1ONm8upt5f0097i1OR9O1ONd700;np0000000000fB*sr3jhE}0ssIo001xm00"
    "99"
)
_IQ2_S = (
    "|KGoVQ~%BTHfP?%FHlAN`~T<L{BQr}P51(B!UT9<|4k7%FWQ6%5Jp1)fZ*S~f7j;!`!{dEmMH@!!29-Z-h_YiCQN`fVFCnz-{MUe0B^zs1Rx|pAOHZ~*Etde&WST&0z}"
    "Xf00a6qZ^8s<6DCjqFaZJr08j=@00?jb002M$f&d^G!2kPyrp^2FZ{CD?(k2Xm|L@<t3IFCzoB(ga1PDO(&6^+r-h>Gd2uy$g006vy|K<(&H*dlOXcH!20Pt_#gbDB_O"
    "n?Aj0tEm7;7yna0l)+Z002Nh000P}d($RJfHz?R1OyTw5C9Nu!UPBaCO`xP0s;U400c|`00a;OfB*mh00062fOuQxMH#Sf-hc^M2TT9};9tB66W~pl01?0h3;+N?8886"
    "=hyf6Q00002FbEL)<V~0WWxzxL046{H0D#_v2@nWOfB*nc1ONmC0GL1l000aCPyhe`00008P(@Av01^NMAOJvu1^^n+1PA~SNI(Dp000000ssIA2mk;O000Oe02mekKm"
    "Y*"
)
_IQ3_XXS = (
    "6^aD{1ONai3I!qs0uTTJ6#@l{0D=G@f(0M|0000100;np5P$$Ef&c&n00aO40000W000mG08sz{2mk^A3Iz%kfB^si1p);C000003IzfI000041pom8Kmb4hA^-pY009"
    "61000pHKmY&&AOHXW00000000C40RR911qww11ONa4Dg^=o004*q1%d^D0U!VX0ucZJ0000H0000W00;m82mpWp0ssII00000000003P1n=AOHXW0tE^H00AHb1pom8P"
    "yhe`3IQMh00aO800ICA0000000001fB*mlK>!2*03ZMW01yB`000O800008000315P$%n0Ehqp000000000G0004i0RTY&fB*mhAOHXW5C8xG00IyI001BW2mk;90000"
    "000000AO!#c0000000aO40ssI3K>$Di03ZMW01yBK000041ONa400;m800D>q000041ONa6000000000000961000mG1ONa4000mGPyi4B00062000620Du4h000mG00"
    "00%00000000005C8xGAOHXW00aO400008000002mk^A00000r~v>300aO4002M$0RR9100aO4AOrva0U!Vf00031000620ssI21pp8L0000000001000000000000000"
)

_IQ3_S = (
    "r&l8gr3wX-7bA%x5C9?sqe&tWqzV8D2qFba5CwoD0f-U=2?78C6aYmCq5wb$Knef?00aO66#zvD01*HH7pnzQ08j!1OA!JI0tEm;0i+QG2_OLkk_mzl0ssU7C=>t+L=gZ0"
    "0to^I00IC2005ByPyhe`3Izfn0ssU7t5u2xDg}Tk1&JgQ1Ofm6k^l;U0*C+-B?1%*1OY$*f&d950ssIc5CQ~%0SEvAg#ZEo03ZSYAOb)E2mt^91gZoolmZ9>Di8_)0RRC+"
    "0R#aQ009610uhP<iXZ?82tot`00a>L0tFxh5I_J306+i$0ssI23IGKl000005d@J00s#O4gbD;92qFLg3Lydr0e}Pn5DEn%000001pp9$0RR93pa22@000C400;mO00031"
    "03iSY2m$~A1Q7%Pkpw^xDg*)q000040Rjj?00;m8gaLp65CR|w5&!`NKmY&$00ck)015yA000001ONa46aWMO0000004e|q000310RVvj000mG00aOK1Rw+f0T2QJ0RR91"
    "001BW2mk~C2><{P00031AOHXW0RR91015yA00000kpKli0T2WL1OgBMC;$Ke5<vn100IC21ONae00;m8A_xHh00961000C41ONa41ONa6000000RR9100000"
)


@functools.cache
def grid(format_name: str) -> NDArray[np.float32]:
    """The magnitudes of a book: [512, 8] for IQ2_XS, [1024, 8] for IQ2_S, [256, 4] for IQ3_XXS, [512, 4] for IQ3_S. Read-only."""
    bits, alphabet, digits = {
        "IQ2_XS": (_IQ2_XS, _IQ2_ALPHABET, 8),
        "IQ2_S": (_IQ2_S, _IQ2_ALPHABET, 8),
        "IQ3_XXS": (_IQ3_XXS, _IQ3_ALPHABET, 4),
        "IQ3_S": (_IQ3_S, _IQ3_S_ALPHABET, 4),
    }[format_name]
    base = len(alphabet)
    candidates = np.arange(base**digits)[:, None] // base ** np.arange(digits) % base
    if base == 3:
        candidates = candidates[(candidates == 1).sum(1) % 2 == 0]
    chosen = np.unpackbits(np.frombuffer(base64.b85decode(bits), np.uint8), bitorder="little")[: len(candidates)]
    points = np.array(alphabet, np.float32)[candidates[chosen == 1]]
    points.flags.writeable = False
    return points


@functools.cache
def sign_bytes() -> NDArray[np.uint8]:
    """Seven stored sign bits to eight: the last makes the number of minus signs even. [128], read-only."""
    seven = np.arange(128, dtype=np.uint8)
    odd = np.unpackbits(seven[:, None], axis=1).sum(1) % 2
    signs = (seven | odd << 7).astype(np.uint8)
    signs.flags.writeable = False
    return signs
