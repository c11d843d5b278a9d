#!/bin/sh
# Stands in for clang where only gcc is there, for tinygrad's CPU backend (CC=this DEV=CPU): drops --target, turns
# clang's vector types and its bit cast into gcc's, and writes the object to standard output by way of a file, which
# the assembler of gcc cannot do itself.
set -e
object=$(mktemp)
trap 'rm -f "$object"' EXIT
left=$#
while [ "$left" -gt 0 ]; do
  case $1 in
    --target=*) ;;
    -o) shift; left=$((left - 1)) ;;
    *) set -- "$@" "$1" ;;
  esac
  shift
  left=$((left - 1))
done
sed -E 's/aligned\(([0-9]+)\),ext_vector_type\([0-9]+\)/vector_size(\1)/' |
  gcc '-D__builtin_bit_cast(T, x)=({ __auto_type v_ = (x); T r_; __builtin_memcpy(&r_, &v_, sizeof r_); r_; })' "$@" -o "$object"
cat "$object"
